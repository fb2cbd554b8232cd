// SPDX-License-Identifier: Apache-2.0
#include "comm/mpi_peer.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <stdexcept>
#include <string>

namespace lockstep::bench {

std::unique_ptr<MpiPeer> MpiPeer::start([[maybe_unused]] int ranks) {
#ifndef LOCKSTEP_MPI_BENCH_RANKS
  return nullptr;
#else
  int to[2], from[2];
  if (pipe(to) != 0 || pipe(from) != 0) throw std::runtime_error("comm_bench: no pipe");
  std::unique_ptr<MpiPeer> peer(new MpiPeer);
  peer->pid_ = fork();
  if (peer->pid_ == 0) {
    dup2(to[0], STDIN_FILENO);
    dup2(from[1], STDOUT_FILENO);
    for (int fd : {to[0], to[1], from[0], from[1]}) close(fd);
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    const std::string count = std::to_string(ranks);
    execlp("mpirun", "mpirun", "--oversubscribe", "-n", count.c_str(), LOCKSTEP_MPI_BENCH_RANKS, nullptr);
    _exit(127);
  }
  close(to[0]);
  close(from[1]);
  peer->orders_ = fdopen(to[1], "w");
  peer->answers_ = fdopen(from[0], "r");
  return peer;
#endif
}

MpiPeer::~MpiPeer() {
  if (orders_ != nullptr) std::fclose(orders_);
  if (answers_ != nullptr) std::fclose(answers_);
  if (pid_ > 0) waitpid(pid_, nullptr, 0);
}

double MpiPeer::all_reduce(int64_t bytes, int64_t repetitions) {
  std::fprintf(orders_, "%ld %ld\n", static_cast<long>(bytes), static_cast<long>(repetitions));
  std::fflush(orders_);
  char answer[64];
  if (std::fgets(answer, sizeof answer, answers_) == nullptr)
    throw std::runtime_error("comm_bench: mpirun gave no answer");
  return std::strtod(answer, nullptr);
}

}  // namespace lockstep::bench
