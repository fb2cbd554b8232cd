// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

namespace lockstep::bench {

/// A contender in processes of its own. Each process reads lines "STEPS", makes that many steps and, if it is the
/// first, prints the seconds of one and whatever other numbers it
/// likes. It waits for the next line without using a processor.
class Peer {
 public:
  /// One process a command line; the shell's words.
  explicit Peer(const std::vector<std::string>& commands);
  ~Peer();
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  /// Seconds a step. Throws std::runtime_error when the first process has ended.
  double run(int steps);

  /// All numbers of the last answer, the seconds first.
  const std::vector<double>& answer() const { return answer_; }

  /// The sum over all processes of the most memory each has held so far, in MiB.
  double peak_mib() const;

 private:
  struct Process {
    pid_t pid = -1;
    std::FILE* orders = nullptr;
    std::FILE* answers = nullptr;
  };
  std::vector<Process> processes_;
  std::vector<double> answer_;
};

}  // namespace lockstep::bench
