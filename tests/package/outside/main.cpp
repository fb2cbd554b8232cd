// SPDX-License-Identifier: Apache-2.0
// Adds 1 to 7 in the canonical order.
#include <iostream>

#include "lockstep/base/error.h"
#include "lockstep/numerics/tree.h"

int main() {
  auto add = [](int& left, int&& right) { left += right; };
  lockstep::TreeAccumulator<int, decltype(add)> sum(7, add);
  for (int i = 0; i < 7; ++i) sum.push({i, i + 1}, i + 1);
  lockstep::require(sum.complete(), "outside", sum.entries().size(), " nodes are left, expected the root");
  std::cout << "sum over 7 replicas: " << sum.entries()[0].value << "\n";
}
