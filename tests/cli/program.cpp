// SPDX-License-Identifier: Apache-2.0
#include "cli/program.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace lockstep::cli {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

// In the child, which has one thread.
[[noreturn]] void become_program(std::vector<std::string> arguments, const ProgramOptions& options) {
  setenv("XDG_CACHE_HOME", "/proc/none", 1);  // what this user's trainings have left is no concern of a test
  for (const auto& [name, value] : options.environment)
    value.empty() ? unsetenv(name.c_str()) : setenv(name.c_str(), value.c_str(), 1);
  for (int signal : options.ignored_signals) ::signal(signal, SIG_IGN);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  arguments.insert(arguments.begin(), options.program);
  std::vector<char*> pointers;
  for (auto& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  execv(pointers[0], pointers.data());
  _exit(99);
}

}  // namespace

Words operator+(Words a, const Words& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::string built(const std::string& path) {
  const auto tests = std::filesystem::read_symlink("/proc/self/exe").parent_path();  // BUILD/tests/cli
  return (tests.parent_path().parent_path() / path).string();
}

Program::Program(std::vector<std::string> arguments, ProgramOptions options) {
  if (options.terminal) {
    process_ = forkpty(&out_fd_, nullptr, nullptr, nullptr);
    if (process_ == 0) become_program(std::move(arguments), options);
    in_fd_ = out_fd_;
    return;
  }
  int in[2], out[2], err[2];
  if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0) std::abort();
  process_ = fork();
  if (process_ == 0) {
    dup2(in[0], 0);
    dup2(out[1], 1);
    dup2(err[1], 2);
    become_program(std::move(arguments), options);
  }
  for (int fd : {in[0], out[1], err[1]}) close(fd);
  out_fd_ = out[0];
  err_fd_ = err[0];
  if (!options.input.empty() && write(in[1], options.input.data(), options.input.size()) < 0) std::abort();
  close(in[1]);
}

Program::~Program() {
  if (process_ > 0) {
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
  }
  for (int fd : {out_fd_, err_fd_})
    if (fd >= 0) close(fd);
}

void Program::send(int signal) const {
  kill(process_, signal);
}

void Program::type(const std::string& keys) const {
  ASSERT_EQ(write(in_fd_, keys.data(), keys.size()), static_cast<ssize_t>(keys.size()));
}

void Program::stop_reading() {
  close(out_fd_);
  out_fd_ = -1;
}

// False: both outputs have ended.
bool Program::read_some(std::chrono::milliseconds time) {
  pollfd ready[] = {{out_fd_, POLLIN, 0}, {err_fd_, POLLIN, 0}};
  if (out_fd_ < 0 && err_fd_ < 0) return false;
  if (poll(ready, 2, static_cast<int>(time.count())) <= 0) return true;
  for (auto [fd, text] : {std::pair(&out_fd_, &out_), {&err_fd_, &err_}}) {
    if (ready[fd == &err_fd_].revents == 0) continue;
    char bytes[1 << 16];
    const ssize_t count = read(*fd, bytes, sizeof bytes);
    if (count > 0) {
      text->append(bytes, count);
    } else {
      close(*fd);
      *fd = -1;
    }
  }
  return true;
}

void Program::wait_for_output(const std::string& text, int times) {
  const auto end = Clock::now() + 30s * LOCKSTEP_PATIENCE;
  const auto found = [&] {
    int count = 0;
    for (size_t at = out_.find(text); at != std::string::npos; at = out_.find(text, at + 1)) ++count;
    return count;
  };
  while (found() < times) {
    const bool more = Clock::now() < end && read_some(std::chrono::milliseconds(100));
    ASSERT_TRUE(more) << "not " << times << " times '" << text << "' in output:\n" << out_ << "\nerrors:\n" << err_;
  }
}

Ended Program::wait() {
  const auto patience = 60s * LOCKSTEP_PATIENCE;
  const auto end = Clock::now() + patience;
  int status = 0;
  bool ended = false;
  while (true) {
    const bool open = read_some(std::chrono::milliseconds(20));
    if (!ended) ended = waitpid(process_, &status, WNOHANG) == process_;
    if (ended && !open) break;
    // Whoever still holds the pipes is no concern of one who waits for the program; what it wrote itself is read.
    if (ended && !read_some(std::chrono::milliseconds(200))) break;
    if (Clock::now() > end) {
      ADD_FAILURE() << "lockstep did not end within " << patience.count() << " s; output:\n"
                    << out_ << "\nerrors:\n"
                    << err_;
      kill(process_, SIGKILL);
      waitpid(process_, &status, 0);
      break;
    }
  }
  process_ = -1;
  return {WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status), out_, err_};
}

Ended run_program(std::vector<std::string> arguments, ProgramOptions options) {
  return Program(std::move(arguments), std::move(options)).wait();
}

void expect_success(const Words& arguments) {
  const Ended ended = run_program(arguments);
  ASSERT_EQ(ended.exit_code, 0) << ended.out << ended.err;
}

Words small() {
  return {"train", "mlp",       "--data",     "synthetic:1x8x8:4:400", "--batch", "32", "--epochs", "2",
          "--set", "hidden=16", "--no-curves"};
}

std::string hash_of(const std::string& path) {
  const Ended ended = run_program({"hash", path});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_TRUE(ended.out.size() == 65 && ended.out.find_first_not_of("0123456789abcdef") == 64) << ended.out;
  return ended.out;
}

std::vector<std::string> run_script(std::vector<std::string> run_arguments, const std::string& script) {
  run_arguments.insert(run_arguments.begin(), "run");
  for (const char* word : {"--", "sh", "-c"}) run_arguments.push_back(word);
  run_arguments.push_back(script);
  return run_arguments;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

char state_of(pid_t process) {
  std::ifstream stat("/proc/" + std::to_string(process) + "/stat");
  std::string text;
  if (!std::getline(stat, text)) return 'X';
  const size_t name_end = text.rfind(')');
  return name_end + 2 < text.size() ? text[name_end + 2] : 'X';
}

bool is_alive(pid_t process) {
  const char state = state_of(process);
  return state != 'Z' && state != 'X';
}

}  // namespace lockstep::cli
