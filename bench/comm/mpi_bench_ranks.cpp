// SPDX-License-Identifier: Apache-2.0
// The ranks of OpenMPI in comm_bench: rank 0 reads "bytes repetitions" from its input and prints seconds per
// all-reduce. Between two orders the ranks sleep, as the other contenders are being measured.
#include <mpi.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <vector>

namespace {

void wait_asleep(MPI_Request request) {
  for (int done = 0; done == 0; usleep(500)) MPI_Test(&request, &done, MPI_STATUS_IGNORE);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (;;) {
    long order[2] = {0, 0};  // bytes, repetitions
    if (rank == 0 && !(std::cin >> order[0] >> order[1])) order[1] = 0;
    MPI_Request request;
    MPI_Ibcast(order, 2, MPI_LONG, 0, MPI_COMM_WORLD, &request);
    wait_asleep(request);
    if (order[1] == 0) break;
    std::vector<float> data(order[0] / sizeof(float), 1.0f);
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    for (long i = 0; i < order[1]; ++i)
      MPI_Allreduce(MPI_IN_PLACE, data.data(), static_cast<int>(data.size()), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    const double seconds = (MPI_Wtime() - start) / static_cast<double>(order[1]);
    if (rank == 0) {
      std::printf("%.9g\n", seconds);
      std::fflush(stdout);
    }
  }
  MPI_Finalize();
}
