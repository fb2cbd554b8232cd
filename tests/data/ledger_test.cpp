// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/ledger.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gmock/gmock.h>

#include <numeric>
#include <thread>

#include "support/files.h"

namespace lockstep::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Ledger, EachExampleOnceIsAProof) {
  Ledger ledger(13);
  std::vector<int64_t> ids(13);
  std::iota(ids.rbegin(), ids.rend(), int64_t{0});
  ledger.add(ids);
  EXPECT_TRUE(ledger.report().exactly_once());
  EXPECT_EQ(ledger.report().to_string(), "13 of 13 examples were used, each once");
}

TEST(Ledger, MissedAndRepeatedExamplesAreNamed) {
  Ledger ledger(20);
  ledger.add(std::vector<int64_t>{0, 1, 2, 3, 3, 5, 6, 7, 8, 9, 19, 3, -1, -1});
  const LedgerReport report = ledger.report();
  EXPECT_FALSE(report.exactly_once());
  EXPECT_EQ(report.uses, 12);
  EXPECT_THAT(report.first_missed, ElementsAre(4, 10, 11, 12, 13, 14, 15, 16, 17, 18));
  EXPECT_THAT(report.first_repeated, ElementsAre(3));
  EXPECT_EQ(
      report.to_string(),
      "10 of 20 examples were used; 10 were missed (4, 10, 11, 12, 13, 14, 15, 16, 17, 18); 1 were used more than "
      "once (3)");
}

TEST(Ledger, StatesOfAnySplitAddUpAsInt64AndAsFloat64) {
  Ledger whole(40), parts(40), floats(40);
  at::Tensor sum = at::zeros_like(whole.state());
  for (int64_t part = 0; part < 7; ++part) {
    Ledger own(40);
    for (int64_t id = part; id < 40; id += 7) {
      const std::vector<int64_t> ids(static_cast<size_t>(id % 3), id);  // 0, 1 or 2 uses
      whole.add(ids);
      own.add(ids);
    }
    parts.merge(own.state());
    sum = sum + own.state();
  }
  floats.merge(sum.to(at::kDouble));
  EXPECT_TRUE(parts.state().equal(whole.state()));
  EXPECT_TRUE(floats.state().equal(whole.state()));
  EXPECT_TRUE(sum.equal(whole.state()));
  EXPECT_LT(whole.state().max().item<int64_t>(), int64_t{1} << 48);
}

TEST(Ledger, ThreadsMayAddToOne) {
  Ledger ledger(10);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) ledger.add(std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ledger.report().uses, 2000);
  EXPECT_EQ(ledger.report().repeated, 10);
  ledger.clear();
  EXPECT_EQ(ledger.report().missed, 10);
}

TEST(Ledger, MistakesAreErrors) {
  Ledger ledger(7);
  EXPECT_THAT(error_of([&] { ledger.add(std::vector<int64_t>{7}); }), HasSubstr("example 7, expected one in [0, 7)"));
  EXPECT_NE(error_of([&] { ledger.add(std::vector<int64_t>{-2}); }), "no error");
  EXPECT_THAT(error_of([&] { ledger.merge(at::zeros({3}, at::kLong)); }),
              HasSubstr("expected [2] of int64 or float64"));
  EXPECT_NE(error_of([&] { ledger.merge(at::zeros({2}, at::kInt)); }), "no error");
  ledger.add(std::vector<int64_t>(255, 3));
  EXPECT_THAT(error_of([&] { ledger.add(std::vector<int64_t>{3}); }), HasSubstr("used 256 times"));
  EXPECT_EQ(ledger.report().uses, 255) << "a count that is full stays";
}

}  // namespace
}  // namespace lockstep::data
