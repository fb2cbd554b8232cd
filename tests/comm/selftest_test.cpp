// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/selftest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "comm/gloo/gloo.h"
#include "comm/transport/transport_backend.h"
#include "support/threads.h"

namespace lockstep::comm {
namespace {

constexpr int ranks = 3;

// A member that does all right but for one wrong bit in what one kind of call returns.
class Wrong : public Backend {
 public:
  Wrong(std::shared_ptr<Backend> right, Kind kind) : right_(std::move(right)), kind_(kind) {}
  int rank() const override { return right_->rank(); }
  int size() const override { return right_->size(); }
  std::string name() const override { return "wrong"; }
  std::chrono::milliseconds timeout() const override { return right_->timeout(); }
  std::shared_ptr<WorkState> post(Call call) override {
    const bool spoil = call.kind == kind_ && !call.outputs.empty() && call.outputs[0].scalar_type() == at::kFloat &&
                       call.outputs[0].numel() > 14 && call.outputs[0].numel() <= 15 * ranks;
    const auto output = spoil ? call.outputs[0] : at::Tensor();
    auto work = right_->post(std::move(call));
    if (!spoil) return work;
    work->wait_until(std::chrono::steady_clock::now() + timeout());
    static_cast<uint32_t*>(output.mutable_data_ptr())[3] ^= 1;
    return work;
  }
  std::shared_ptr<Backend> subgroup(const std::vector<int>& members, int number) override {
    return right_->subgroup(members, number);
  }
  void abort(const std::string& reason) noexcept override { right_->abort(reason); }

 private:
  std::shared_ptr<Backend> right_;
  Kind kind_;
};

TEST(Selftest, SeesOneWrongBitOfEachCollective) {
  if (!has_gloo()) GTEST_SKIP() << "this build has no Gloo (headers: libgloo-dev)";
  for (const Kind kind : {Kind::all_reduce, Kind::reduce_scatter, Kind::all_gather, Kind::gather, Kind::scatter,
                          Kind::broadcast, Kind::all_to_all, Kind::recv}) {
    const auto store = c10::make_intrusive<c10d::HashStore>();
    std::vector<SelftestReport> reports(ranks);
    lockstep::test::run_threads(ranks, [&](int rank) {
      constexpr std::chrono::seconds timeout{30};
      auto backend = make_transport_backend(make_gloo_transport(store, rank, ranks, "127.0.0.1", timeout), timeout);
      // The last rank is the one that a gather goes to.
      if (rank == ranks - 1) backend = std::make_shared<Wrong>(backend, kind);
      reports[rank] = selftest(Group(backend));
    });
    const std::string name = kind == Kind::recv ? "send and recv" : name_of(kind);
    ASSERT_THAT(reports[ranks - 1].failures, ::testing::Not(::testing::IsEmpty())) << name;
    for (const auto& failure : reports[ranks - 1].failures) {
      EXPECT_THAT(failure, ::testing::StartsWith(name + "("));
      EXPECT_THAT(failure, ::testing::HasSubstr("element 3 is "));
      EXPECT_THAT(failure, ::testing::HasSubstr("(1 of "));
    }
    for (int rank = 0; rank < ranks - 1; ++rank) EXPECT_THAT(reports[rank].failures, ::testing::IsEmpty()) << name;
    EXPECT_GT(reports[0].checks, 300);
  }
}

TEST(Selftest, ReportsAPeerThatLeaves) {
  auto groups = local_groups(2, std::chrono::seconds(30));
  lockstep::test::run_threads(2, [&](int rank) {
    const Group mine = std::move(groups[rank]);
    if (rank == 1) return;
    const auto report = selftest(mine);
    ASSERT_EQ(report.failures.size(), 1u);
    EXPECT_THAT(report.failures[0], ::testing::HasSubstr("rank 1 has left the group"));
  });
}

}  // namespace
}  // namespace lockstep::comm
