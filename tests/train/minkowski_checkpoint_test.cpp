// SPDX-License-Identifier: Apache-2.0
// Weights of MinkowskiEngine's MinkUNet34C, in a file that Python wrote, in use here: the slow reference finds them in
// the file by MinkowskiEngine's names, and the network in its tensors after loading.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <memory>

#include "lockstep/base/error.h"
#include "lockstep/models/clouds/minkunet.h"
#include "lockstep/run/weights.h"
#include "lockstep/train/trainer.h"
#include "support/slow_network.h"
#include "support/temporary_folder.h"

namespace lockstep::train {
namespace {

using models::test::SlowCloud;
using models::test::SlowNetwork;

/// A basic block, with a `downsample` where channels change.
SlowCloud slow_block(const SlowNetwork& layers, const std::string& name, const SlowCloud& x) {
  SlowCloud y = models::test::relu(layers.norm(name + ".norm1", layers.convolve(name + ".conv1", x)));
  y = layers.norm(name + ".norm2", layers.convolve(name + ".conv2", y));
  SlowCloud shortcut = x;
  if (y.rows.size(1) != x.rows.size(1))
    shortcut = layers.norm(name + ".downsample.1", layers.convolve(name + ".downsample.0", x));
  return models::test::relu(models::test::add(y, shortcut));
}

SlowCloud slow_blocks(const SlowNetwork& layers, int64_t number, int64_t count, SlowCloud x) {
  for (int64_t block = 0; block < count; ++block) x = slow_block(layers, text("block", number, ".", block), x);
  return x;
}

/// MinkUNet34C as its paper draws it.
SlowCloud slow_minkunet34c(const SlowNetwork& layers, const SlowCloud& x) {
  constexpr std::array<int64_t, 8> kBlocks{2, 3, 4, 6, 2, 2, 2, 2};
  std::vector<SlowCloud> skips{models::test::relu(layers.norm("bn0", layers.convolve("conv0p1s1", x)))};
  for (int64_t level = 1; level <= 4; ++level) {
    const SlowCloud down = layers.convolve(text("conv", level, "p", 1 << (level - 1), "s2"), skips.back(), 2);
    skips.push_back(
        slow_blocks(layers, level, kBlocks[level - 1], models::test::relu(layers.norm(text("bn", level), down))));
  }
  SlowCloud y = skips.back();
  for (int64_t level = 4; level < 8; ++level) {
    skips.pop_back();
    const SlowCloud up =
        layers.convolve_up(text("convtr", level, "p", 16 >> (level - 4), "s2"), y, 2, skips.back().points);
    y = models::test::cat(models::test::relu(layers.norm(text("bntr", level), up)), skips.back());
    y = slow_blocks(layers, level + 1, kBlocks[level], y);
  }
  return layers.convolve("final", y);
}

class MinkowskiCheckpoint : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (access(LOCKSTEP_TORCH_PYTHON, X_OK) != 0) return;
    folder_ = std::make_unique<test::TemporaryFolder>();
    file_ = folder_->file("minkunet34c.pth");
    const std::string command = text("'", LOCKSTEP_TORCH_PYTHON, "' '", LOCKSTEP_MINKOWSKI_CHECKPOINT_PY, "' '",
                                     LOCKSTEP_GOLDEN, "/minkunet34c-state-dict.txt' '", file_, "'");
    ASSERT_EQ(std::system(command.c_str()), 0);  // NOLINT(bugprone-command-processor)
  }
  static void TearDownTestSuite() { folder_.reset(); }
  void SetUp() override {
    if (!folder_) GTEST_SKIP() << "no " << LOCKSTEP_TORCH_PYTHON;
  }
  static inline std::unique_ptr<test::TemporaryFolder> folder_;
  static inline std::string file_;
};

TEST_F(MinkowskiCheckpoint, OfMinkUNet34CComputesWhatItsDefinitionSays) {
  const auto weights = run::read_weights(file_);
  ASSERT_EQ(weights.size(), 374);
  models::MinkUNet net(models::MinkUNetOptions::variant("34C", 3, 20));
  models::load_state_dict(*net, weights);
  net->eval();
  at::manual_seed(8);
  const sparse::SparseTensor x(at::randn({120, 3}), sparse::test::random_cloud(120, 3, -9, 9, 2, 5));
  const SlowCloud expected = slow_minkunet34c(SlowNetwork(weights), models::test::slow(x));
  EXPECT_GT(expected.rows.abs().max().item<double>(), 0.1);
  const at::NoGradGuard no_grad;
  models::test::expect_same(net->forward(x), expected, 1e-5);
  net->to(at::kDouble);
  models::test::expect_same(net->forward(x.to(at::kDouble)), expected, 1e-11);
}

/// `lockstep train minkunet34c --init FILE.pth`, with a learning rate that leaves the weights as they are.
TEST_F(MinkowskiCheckpoint, IsWhatATrainingMayBeginWith) {
  run::Config config;
  config.model = "minkunet34c";
  config.data = "rooms:1:3";
  config.voxel = 0.5;
  config.batch = config.replicas = config.steps = 1;
  config.lr = 1e-60;  // its products with gradients are zero
  config.quiet = true;
  config.curves = false;
  config.init = file_;
  Task task = make_task(config);
  task.test = nullptr;  // rooms have 8 classes, the checkpoint 20
  task.network = [] {
    return models::Classifier::of(models::MinkUNet(models::MinkUNetOptions::variant("34C", 3, 20)));
  };
  Trainer trainer(config, std::move(task));
  const auto weights = run::read_weights(file_);
  int64_t equal = 0;
  trainer.on_step([&](const StepReport&, const models::Classifier& network) {
    for (const auto& parameter : network.named_parameters())
      equal += at::equal(parameter.value(), weights.at(parameter.key()));
  });
  trainer.run();
  EXPECT_EQ(equal, 188);
}

}  // namespace
}  // namespace lockstep::train
