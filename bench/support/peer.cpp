// SPDX-License-Identifier: Apache-2.0
#include "support/peer.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <stdexcept>

namespace lockstep::bench {

Peer::Peer(const std::vector<std::string>& commands) {
  for (const std::string& command : commands) {
    int to[2], from[2];
    // Ends that other peers inherited would keep a pipe open after its process has gone.
    if (pipe2(to, O_CLOEXEC) != 0 || pipe2(from, O_CLOEXEC) != 0) throw std::runtime_error("bench: no pipe");
    const pid_t pid = fork();
    if (pid == 0) {
      dup2(to[0], STDIN_FILENO);
      dup2(from[1], STDOUT_FILENO);
      execl("/bin/sh", "sh", "-c", ("exec " + command).c_str(), nullptr);
      _exit(127);
    }
    close(to[0]);
    close(from[1]);
    processes_.push_back({pid, fdopen(to[1], "w"), fdopen(from[0], "r")});
  }
}

Peer::~Peer() {
  for (const Process& process : processes_) {
    std::fclose(process.orders);
    std::fclose(process.answers);
  }
  for (const Process& process : processes_) waitpid(process.pid, nullptr, 0);
}

double Peer::run(int steps) {
  signal(SIGPIPE, SIG_IGN);
  for (const Process& process : processes_) {
    std::fprintf(process.orders, "%d\n", steps);
    std::fflush(process.orders);
  }
  char answer[128];
  if (std::fgets(answer, sizeof answer, processes_[0].answers) == nullptr)
    throw std::runtime_error("bench: a contender ended; its message is above");
  answer_.clear();
  std::istringstream numbers(answer);
  for (double number; numbers >> number;) answer_.push_back(number);
  if (answer_.empty()) throw std::runtime_error("bench: a contender's answer is no number");
  return answer_[0];
}

double Peer::peak_mib() const {
  double sum = 0;
  for (const Process& process : processes_) {
    std::ifstream status("/proc/" + std::to_string(process.pid) + "/status");
    for (std::string word; status >> word;)
      if (word == "VmHWM:") {
        double kib = 0;
        status >> kib;
        sum += kib / 1024;
      }
  }
  return sum;
}

}  // namespace lockstep::bench
