// SPDX-License-Identifier: Apache-2.0
// A rank that adds up tensors with the others until one of them fails.
#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>

#include <cstdio>

#include "lockstep/comm/connect.h"

int main() {
  using namespace lockstep;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  try {
    comm::ConnectOptions options;
    options.backend = "gloo";
    const comm::Group group = comm::connect(options);
    const auto tensor = at::ones({1 << 16});
    for (int round = 1;; ++round) {
      group.all_reduce(tensor, ReduceOp::mean).wait();
      if (round == 10) std::printf("10 rounds\n");
    }
  } catch (const comm::CommError& error) {
    std::printf("CommError: rank %d failed, seen after %.1f s: %s\n", error.rank(), error.seconds(), error.what());
    return 1;
  }
}
