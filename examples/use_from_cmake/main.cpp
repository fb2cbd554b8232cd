// SPDX-License-Identifier: Apache-2.0
// Four threads add up their gradients. The order of the additions is fixed, so every run gives the same bits.
#include <ATen/ops/full.h>

#include <iostream>
#include <thread>

#include "lockstep/comm/group.h"

int main() {
  std::vector<std::thread> threads;
  for (const auto& group : lockstep::comm::local_groups(4)) {
    threads.emplace_back([group] {
      auto gradient = at::full({1000}, 0.1 * (group.rank() + 1));
      group.all_reduce(gradient).wait();
      if (group.rank() == 0)
        std::cout << "sum over " << group.size() << " threads: " << gradient[0].item<float>() << "\n";
      group.finish();
    });
  }
  for (auto& thread : threads) thread.join();
}
