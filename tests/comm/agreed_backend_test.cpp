// SPDX-License-Identifier: Apache-2.0
// Which backend joins the processes of a job, by what GPUs they see. No GPU is needed: they are names here.
#include "comm/meeting/agreed_backend.h"

#include <gmock/gmock.h>

#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "lockstep/base/error.h"
#include "lockstep/comm/error.h"
#include "support/threads.h"

namespace lockstep::comm {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Gpus = std::vector<std::string>;

// What each rank comes to.
Gpus agreed(const Gpus& gpus, const std::string& wanted) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const int size = static_cast<int>(gpus.size());
  Gpus said(gpus.size());
  test::run_threads(size, [&](int rank) {
    try {
      said[rank] = agree_on_backend(*store, rank, size, gpus[rank], wanted, milliseconds(20000));
    } catch (const Error& error) {
      said[rank] = error.what();
    }
  });
  return said;
}

TEST(AgreedBackend, IsNcclWhereEachRankHasAGpuOfItsOwn) {
  EXPECT_EQ(agreed({"GPU-a", "GPU-b", "GPU-c"}, "auto"), Gpus(3, "nccl"));
  EXPECT_EQ(agreed({"GPU-a", "GPU-b"}, "nccl"), Gpus(2, "nccl"));
}

TEST(AgreedBackend, IsGlooOnAllRanksWhereOneHasNoneOrTwoHaveTheSame) {
  EXPECT_EQ(agreed({"GPU-a", "", "GPU-c"}, "auto"), Gpus(3, "gloo"));
  EXPECT_EQ(agreed({"", ""}, "auto"), Gpus(2, "gloo"));
  EXPECT_EQ(agreed({"GPU-a", "GPU-b", "GPU-a"}, "auto"), Gpus(3, "gloo"));
}

TEST(AgreedBackend, NcclThatIsAskedForAndCannotBeIsAnErrorOnAllRanks) {
  for (const std::string& said : agreed({"GPU-a", "GPU-b", "GPU-b"}, "nccl"))
    EXPECT_THAT(said, AllOf(HasSubstr("ranks 1 and 2 would both take GPU-b"), HasSubstr("CUDA_VISIBLE_DEVICES")));
  for (const std::string& said : agreed({"GPU-a", ""}, "nccl")) EXPECT_THAT(said, HasSubstr("rank 1 sees no GPU"));
}

TEST(AgreedBackend, ARankThatDoesNotComeIsNamed) {
  c10d::HashStore store;
  try {
    agree_on_backend(store, 0, 2, "GPU-a", "auto", milliseconds(100));
    FAIL() << "expected CommError";
  } catch (const CommError& error) {
    EXPECT_EQ(error.rank(), 1);
    EXPECT_THAT(error.what(), HasSubstr("rank 1 did not come within 0.1 s"));
  }
}

}  // namespace
}  // namespace lockstep::comm
