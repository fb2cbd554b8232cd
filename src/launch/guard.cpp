// SPDX-License-Identifier: Apache-2.0
#include "launch/guard.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <set>

#include "lockstep/base/error.h"

namespace lockstep::launch {
namespace {

bool holds(pid_t process, const std::string& marker) {
  std::ifstream file(text("/proc/", process, "/environ"));
  const std::string environment{std::istreambuf_iterator<char>(file), {}};
  return ('\0' + environment).find('\0' + marker + '\0') != std::string::npos;
}

// Again until a pass finds none: a process may fork while we look. Not for ever: the kernel may hold one back.
int kill_all(const std::string& marker) {
  std::set<pid_t> killed;
  bool found = true;
  for (int pass = 0; found && pass < 100; ++pass) {
    if (pass > 0) usleep(10'000);
    found = false;
    const std::unique_ptr<DIR, int (*)(DIR*)> processes(opendir("/proc"), closedir);
    if (!processes) break;
    while (const dirent* entry = readdir(processes.get())) {
      const auto process = static_cast<pid_t>(std::strtol(entry->d_name, nullptr, 10));
      if (process <= 0 || !holds(process, marker)) continue;
      kill(process, SIGKILL);
      killed.insert(process);
      found = true;
    }
  }
  return static_cast<int>(std::min<size_t>(killed.size(), 255));
}

[[noreturn]] void guard(Descriptor launcher, const std::string& marker) {
  // A session of its own and deaf to what a terminal or a launcher's launcher sends to end the run.
  setsid();
  prctl(PR_SET_NAME, "lockstep-guard");
  for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGUSR1, SIGUSR2}) ::signal(signal, SIG_IGN);
  // It must not keep the launcher's pipes open for those who wait at their other ends.
  const int null = open("/dev/null", O_RDWR);
  const int lifeline = dup2(launcher.get(), 3);
  for (int fd : {0, 1, 2}) dup2(null, fd);
  close_range(4, ~0U, 0);
  char byte;
  while (read(lifeline, &byte, 1) < 0 && errno == EINTR) {
  }
  _exit(kill_all(marker));
}

}  // namespace

Guard::Guard(const std::string& marker) {
  Pipe pipe = make_pipe();
  process_ = fork();
  if (process_ < 0) throw_errno("fork");
  if (process_ == 0) {
    pipe.write.close();
    guard(std::move(pipe.read), marker);
  }
  alive_ = std::move(pipe.write);
}

int Guard::finish() noexcept {
  if (process_ < 0) return 0;
  alive_.close();
  int status = 0;
  while (waitpid(process_, &status, 0) < 0 && errno == EINTR) {
  }
  process_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}

}  // namespace lockstep::launch
