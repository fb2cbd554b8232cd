// SPDX-License-Identifier: Apache-2.0
#include "launch/rank_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/launch/launcher.h"

extern char** environ;

namespace lockstep::launch {
namespace {

std::vector<std::string> changed_environment(const std::map<std::string, std::string>& changes) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string variable = *entry;
    if (!changes.contains(variable.substr(0, variable.find('=')))) all.push_back(variable);
  }
  for (const auto& [name, value] : changes) all.push_back(text(name, "=", value));
  return all;
}

std::vector<char*> pointers_to(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (const auto& string : strings) pointers.push_back(const_cast<char*>(string.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// All that the child needs between fork and exec, made before: other threads may hold locks there.
struct Child {
  std::vector<char*> program;
  std::vector<char*> environment;
  const sigset_t* signal_mask;
  pid_t launcher;
  int fds[3];  // its standard input, output and error
  int report;  // takes errno when there is no such program
};

[[noreturn]] void become_program(const Child& child) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != child.launcher) _exit(1);  // it died before the line above
  for (int fd = 0; fd < 3; ++fd)
    if (child.fds[fd] != fd) dup2(child.fds[fd], fd);
  signal(SIGPIPE, SIG_DFL);
  sigprocmask(SIG_SETMASK, child.signal_mask, nullptr);
  execvpe(child.program[0], child.program.data(), child.environment.data());
  const int error = errno;
  [[maybe_unused]] const auto written = write(child.report, &error, sizeof error);
  _exit(127);
}

[[noreturn]] void throw_start_error(const std::string& program, int error) {
  struct stat here {};
  if (error == ENOENT && program.find('/') == std::string::npos && stat(program.c_str(), &here) == 0 &&
      S_ISREG(here.st_mode))
    throw launch::StartError(127,
                             text("run: program '", program, "' was not found on PATH; './", program, "' is here"));
  if (error == ENOENT)
    throw launch::StartError(127,
                             text("run: program '", program, "' was not found, expected a path or a name on PATH"));
  throw launch::StartError(126, text("run: program '", program, "' can't be run: ", std::strerror(error)));
}

}  // namespace

RankProcess start_rank(int rank, const RankCommand& command) {
  const auto environment = changed_environment(command.environment);
  Descriptor null(open("/dev/null", O_RDWR | O_CLOEXEC));
  Pipe report = make_pipe();
  RankProcess started;
  started.rank = rank;
  Child child{pointers_to(command.program),
              pointers_to(environment),
              &command.signal_mask,
              getpid(),
              {command.stdin_fd < 0 ? null.get() : command.stdin_fd, 1, 2},
              report.write.get()};
  std::vector<Pipe> pipes;
  for (int fd = 1; fd <= 2 && command.captured; ++fd) {
    pipes.push_back(make_pipe());
    child.fds[fd] = pipes.back().write.get();
    set_nonblocking(pipes.back().read);
    started.streams.push_back({fd, std::move(pipes.back().read), Lines(prefix_of(rank, fd))});
  }
  started.process = fork();
  if (started.process < 0) throw_errno("fork");
  if (started.process == 0) become_program(child);
  report.write.close();
  int error = 0;
  if (read(report.read.get(), &error, sizeof error) == sizeof error) {
    waitpid(started.process, nullptr, 0);
    throw_start_error(command.program[0], error);
  }
  started.end = Descriptor(static_cast<int>(syscall(SYS_pidfd_open, started.process, 0)));
  if (!started.end) throw_errno("pidfd_open");
  return started;
}

}  // namespace lockstep::launch
