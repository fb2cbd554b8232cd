// SPDX-License-Identifier: Apache-2.0
// One rank of the MPI test: started by mpirun, it runs every collective and exits with 0, or with 1 and what is wrong.
#include <ATen/Parallel.h>

#include <cstdio>
#include <exception>

#include "comm/collective_checks.h"
#include "lockstep/comm/connect.h"

int main() {
  at::set_num_threads(1);
  try {
    const auto group = lockstep::comm::connect();
    if (group.backend() != "mpi") throw std::runtime_error("expected backend mpi, got " + group.backend());
    lockstep::comm::test::check_everything(group);
    group.finish();
    if (group.rank() == 0) std::printf("%d ranks ok\n", group.size());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
