// SPDX-License-Identifier: Apache-2.0
// What PyTorch writes.
#include <gmock/gmock.h>

#include <memory>

#include "data/formats/reading.h"
#include "lockstep/data/dataset.h"
#include "support/files.h"

namespace lockstep::data {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// One Python for all tests: it takes seconds to import torch.
constexpr const char* kScript = R"(
import sys, torch
save = lambda value, name, **options: torch.save(value, sys.argv[1] + '/' + name, **options)
bytes = torch.arange(24, dtype=torch.uint8).view(2, 3, 2, 2)
save({'inputs': bytes, 'targets': torch.tensor([1, 0]), 'class_names': ['cat', 'dog']}, 'bytes.pt')
halves = lambda n: {'inputs': torch.full((n, 5), 0.5, dtype=torch.float64), 'targets': torch.zeros(n, dtype=torch.int32)}
save({'train': halves(4), 'test': halves(3)}, 'splits.pt')
save({'inputs': torch.zeros(2, 3)}, 'no_targets.pt')
save(torch.zeros(2, 3), 'no_dict.pt')
save({'inputs': torch.zeros(2, 3), 'targets': torch.tensor([0, -7])}, 'bad_target.pt')
save({'inputs': 1}, 'old.pt', _use_new_zipfile_serialization=False)
)";

class TensorFile : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (!std::filesystem::exists(LOCKSTEP_TORCH_PYTHON)) return;
    folder = std::make_unique<TemporaryFolder>();
    std::ofstream(*folder / "save.py") << kScript;
    ASSERT_TRUE(succeeds({LOCKSTEP_TORCH_PYTHON, (*folder / "save.py").string(), folder->path().string()}));
  }
  static void TearDownTestSuite() { folder.reset(); }
  void SetUp() override {
    if (!folder) GTEST_SKIP() << "no Python with torch beside this libtorch";
  }

  static std::string spec(const std::string& name) { return "tensors:" + (*folder / name).string(); }

  static inline std::unique_ptr<TemporaryFolder> folder;
};

TEST_F(TensorFile, ADictThatPyTorchSavedIsRead) {
  const auto dataset = open_dataset(spec("bytes.pt"), Subset::train);
  EXPECT_EQ(dataset->info().name, "bytes");
  EXPECT_THAT(dataset->info().class_names, ElementsAre("cat", "dog"));
  EXPECT_THAT(dataset->info().input_shape, ElementsAre(3, 2, 2));
  const Read got = read(*dataset, {1});
  EXPECT_EQ(got.targets[0], 0);
  for (int i = 0; i < 12; ++i) EXPECT_EQ(got.inputs[i], static_cast<float>(12 + i) / 255.0f);
  EXPECT_EQ(open_dataset((*folder / "bytes.pt").string(), Subset::test)->size(), 2) << "recognised by its name";
}

TEST_F(TensorFile, SplitsOfTheirOwnAreTold) {
  EXPECT_EQ(open_dataset(spec("splits.pt"), Subset::train)->size(), 4);
  const auto test = open_dataset(spec("splits.pt"), Subset::test);
  EXPECT_EQ(test->size(), 3);
  EXPECT_THAT(read(*test, {2}).inputs, testing::Each(0.5f));
}

TEST_F(TensorFile, WhatIsNoDataSetIsAnError) {
  EXPECT_THAT(open_error(spec("no_targets.pt")), AllOf(HasSubstr("no_targets.pt"), HasSubstr("has no 'targets'")));
  EXPECT_THAT(open_error(spec("no_dict.pt")), HasSubstr("expected a dict"));
  EXPECT_THAT(open_error(spec("bad_target.pt")), HasSubstr("target 1 is -7"));
  EXPECT_THAT(open_error(spec("old.pt")), AllOf(HasSubstr("old.pt"), HasSubstr("a bare pickle")));
}

TEST_F(TensorFile, EveryTruncationIsAnErrorThatNamesTheFile) {
  std::ifstream file(*folder / "bytes.pt", std::ios::binary);
  const Bytes whole{std::istreambuf_iterator<char>(file), {}};
  for (size_t size = 0; size < whole.size(); size += size < 8 ? 1 : 101) {
    folder->write("short.pt", first(whole, size));
    EXPECT_THAT(open_error(spec("short.pt")), HasSubstr("short.pt")) << size;
  }
}

}  // namespace
}  // namespace lockstep::data
