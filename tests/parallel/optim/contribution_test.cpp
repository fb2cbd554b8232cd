// SPDX-License-Identifier: Apache-2.0
#include "parallel/optim/contribution.h"

#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <array>

namespace lockstep::parallel {
namespace {

// Stand in for numbers on a GPU, of any type and shape.
TEST(Contribution, NumbersThatAreReadLaterCountAsThoseReadAtOnce) {
  const at::Tensor loss = at::tensor(1.1F), half = at::tensor({0.375F}).to(at::kBFloat16), count = at::tensor({{7}});
  std::array<Contribution, 3> now, later;
  for (auto* both : {&now, &later})
    for (Contribution& one : *both) one.numbers.resize(3);
  const auto add = [&](size_t member, size_t number, const at::Tensor& value, double factor) {
    now[member].add(number, value, factor);
    later[member].later.push_back({number, value, factor});
  };
  add(0, Contribution::kLoss, loss, 3);
  add(0, Contribution::kLoss, half, 0.1);  // accumulated
  add(0, Contribution::number_of(0), count, 1);
  add(2, Contribution::number_of(1), count, 0.3);
  read_later(later);
  for (size_t m = 0; m < now.size(); ++m) {
    EXPECT_EQ(later[m].numbers, now[m].numbers) << m;
    EXPECT_TRUE(later[m].later.empty());
  }
  EXPECT_EQ(now[0].numbers, (std::vector<double>{3 * double{1.1F} + 0.1 * 0.375, 7, 0}));
  read_later(later);  // nothing is left
  EXPECT_EQ(later[0].numbers, now[0].numbers);
}

}  // namespace
}  // namespace lockstep::parallel
