// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <functional>
#include <thread>
#include <vector>

namespace lockstep::test {

/// Whether `condition` comes true within 30 s.
inline bool eventually(const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

/// Real processes, forked from the test. The test must not have started torch's own threads before
/// (at::set_num_threads(1)).
class Processes {
 public:
  /// Forks `count` children that run body(rank) and exit with 0, or with 1 and a message where it throws.
  Processes(int count, const std::function<void(int)>& body) {
    for (int rank = 0; rank < count; ++rank) {
      const pid_t pid = fork();
      if (pid == 0) {
        int code = 0;
        try {
          body(rank);
        } catch (const std::exception& error) {
          std::fprintf(stderr, "process %d: %s\n", rank, error.what());
          code = 1;
        }
        std::fflush(nullptr);
        _exit(code);
      }
      pids_.push_back(pid);
    }
  }
  ~Processes() {
    for (pid_t pid : pids_) {
      if (pid == 0) continue;  // waited for already
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
  }

  void signal(int rank, int number) const { kill(pids_[rank], number); }

  /// The exit code of a child; 128 + n where signal n ended it, -1 where it still ran after `seconds`.
  int wait(int rank, double seconds = 60) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    do {
      int status = 0;
      if (waitpid(pids_[rank], &status, WNOHANG) == pids_[rank]) {
        pids_[rank] = 0;
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    } while (std::chrono::steady_clock::now() < until);
    return -1;
  }

 private:
  std::vector<pid_t> pids_;
};

}  // namespace lockstep::test
