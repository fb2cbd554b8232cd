// SPDX-License-Identifier: Apache-2.0
// Every network that has stages, cut behind each of them: the bits are those of forward(), and of its backward pass.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string_view>

#include "lockstep/context/random_scope.h"
#include "lockstep/context/stages.h"
#include "lockstep/models/registry.h"
#include "lockstep/numerics/random.h"
#include "support/clouds.h"
#include "support/error_of.h"

namespace lockstep::models {
namespace {

using sparse::SparseTensor;
using ::testing::HasSubstr;

/// A single layer, and a sum of what two ways give that are nested in each other.
constexpr std::array<std::string_view, 2> whole_networks{"voxel_linear", "stackunet"};

std::vector<std::string> names() {
  const Registry registry = builtin();
  std::vector<std::string> all;
  // A variant of a sparse network is the same code with other numbers of blocks and channels.
  const std::set<std::string> variants{"minkunet14a", "minkresnet18", "minkfcnn"};
  for (const Entry& entry : registry.entries())
    if (std::ranges::find(whole_networks, entry.name) == whole_networks.end() &&
        (entry.labels == Labels::examples || variants.contains(entry.name)))
      all.push_back(entry.name);
  return all;
}

Options small(const Entry& entry) {
  Options options{.input = {2, 16, 16}, .classes = 5};
  if (entry.labels != Labels::examples) {
    options.input = {3};
    options.dimension = 3;
  }
  for (const Setting& setting : entry.settings) {
    if (setting.name == "width") options.settings["width"] = "0.125";
    if (setting.name == "dropout") options.settings["dropout"] = "0.25";
    if (setting.name == "field") options.settings["field"] = "1";
  }
  return options;
}

Input input_of(const Entry& entry) {
  if (entry.labels == Labels::examples) return normal_(at::empty({6, 2, 16, 16}), RandomKey{3});
  const at::Tensor points =
      sparse::CoordinateMap::insert(sparse::test::random_cloud(300, 3, -12, 12, 2, 5)).map->coordinates().clone();
  SparseTensor voxels(normal_(at::empty({points.size(0), 3}), RandomKey{3}), points);
  if (entry.labels == Labels::clouds) return sparse::points_of(voxels);
  return voxels;
}

using Named = std::map<std::string, at::Tensor>;

/// The logits, all gradients and all buffers.
Named results_of(const Classifier& network, const at::Tensor& logits) {
  Named all{{"logits", logits.detach()}};
  for (const auto& item : network.named_parameters()) all["gradient of " + item.key()] = item.value().grad();
  for (const auto& item : network.named_buffers()) all[item.key()] = item.value();
  return all;
}

at::Tensor loss_of(const at::Tensor& logits) {
  return (logits * normal_(at::empty(logits.sizes()), RandomKey{7})).sum();
}

std::shared_ptr<Classifier> made(const Entry& entry) {
  const RandomScope draws(RandomKey{1});
  return make(entry.name, small(entry));
}

Named whole(const Entry& entry) {
  const auto network = made(entry);
  const RandomScope draws(RandomKey{2});
  const at::Tensor logits = network->forward(input_of(entry));
  loss_of(logits).backward();
  return results_of(*network, logits);
}

/// A border: what the stages before it gave, each tensor once, and the leaves that those behind it took instead.
struct Cut {
  std::vector<at::Tensor> sources, leaves;

  explicit Cut(Bundle& bundle) {
    std::vector<at::Tensor> tensors = bundle.tensors();
    std::map<const c10::TensorImpl*, at::Tensor> leaf_of;
    for (at::Tensor& tensor : tensors) {
      if (!tensor.requires_grad()) continue;
      at::Tensor& leaf = leaf_of[tensor.unsafeGetTensorImpl()];
      if (!leaf.defined()) {
        leaf = tensor.detach().requires_grad_();
        sources.push_back(tensor);
        leaves.push_back(leaf);
      }
      tensor = leaf;
    }
    bundle.replace_tensors(tensors);
  }
};

Named cut_everywhere(const Entry& entry) {
  const auto network = made(entry);
  const RandomScope draws(RandomKey{2});
  Bundle bundle;
  std::visit([&](const auto& x) { bundle.put(x); }, input_of(entry));
  std::vector<Cut> cuts;
  for (const Stage& stage : network->stages()) {
    cuts.emplace_back(bundle);
    stage.run(bundle);
  }
  const at::Tensor logits = bundle.tensors().front();
  loss_of(logits).backward();
  for (; !cuts.empty(); cuts.pop_back()) {
    std::vector<at::Tensor> used, gradients;  // not what the last stage left and nobody read
    for (size_t i = 0; i < cuts.back().leaves.size(); ++i)
      if (const at::Tensor gradient = cuts.back().leaves[i].grad(); gradient.defined()) {
        used.push_back(cuts.back().sources[i]);
        gradients.push_back(gradient);
      }
    if (!gradients.empty()) torch::autograd::backward(used, gradients);
  }
  return results_of(*network, logits);
}

class Stages : public testing::TestWithParam<std::string> {};

TEST_P(Stages, ComputeTheSameBitsCutBehindEachOfThem) {
  const Registry registry = builtin();
  const Entry& entry = registry.find(GetParam());
  EXPECT_GE(made(entry)->stages().size(), 3U);
  const Named expected = whole(entry), got = cut_everywhere(entry);
  ASSERT_EQ(got.size(), expected.size());
  for (const auto& [name, tensor] : expected) {
    ASSERT_EQ(tensor.defined(), got.at(name).defined()) << name;
    EXPECT_TRUE(!tensor.defined() || at::equal(got.at(name), tensor)) << name;
  }
  EXPECT_GT(expected.at("logits").abs().sum().item<double>(), 0);
}

INSTANTIATE_TEST_SUITE_P(Of, Stages, testing::ValuesIn(names()), [](const auto& info) { return info.param; });

TEST(NetworksWithoutStages, AreRefusedWithWhatToWrite) {
  const Registry registry = builtin();
  for (const std::string_view name : whole_networks) {
    const auto network = made(registry.find(std::string(name)));
    EXPECT_THAT(test::error_of([&] { network->stages(); }),
                AllOf(HasSubstr("has no stages"), HasSubstr("std::vector<lockstep::Stage> stages() override"),
                      HasSubstr("return lockstep::fold<at::Tensor>(stages(), x);")));
  }
}

TEST(ASequence, IsCutBetweenItsModules) {
  const auto network =
      Classifier::of(torch::nn::Sequential(torch::nn::Linear(4, 3), torch::nn::ReLU(), torch::nn::Linear(3, 2)));
  std::vector<std::string> found;
  for (const Stage& stage : network->stages()) found.push_back(stage.name);
  EXPECT_EQ(found, (std::vector<std::string>{"0", "1", "2"}));
}

TEST(ABundle, NamesWhatIsMissingOrOfAnotherType) {
  Bundle bundle;
  bundle.put("skip", at::empty({2}));
  EXPECT_THAT(test::error_of([&] { bundle.get<at::Tensor>(); }), HasSubstr("there is no 'x', expected one of skip"));
  EXPECT_THAT(test::error_of([&] { bundle.get<SparseTensor>("skip"); }), HasSubstr("'skip' is of another type"));
  EXPECT_EQ(bundle.take<at::Tensor>("skip").numel(), 2);
  EXPECT_TRUE(bundle.tensors().empty());
}

}  // namespace
}  // namespace lockstep::models
