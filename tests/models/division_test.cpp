// SPDX-License-Identifier: Apache-2.0
// Networks divided in every way: d copies of p parts of which t devices share the slices, each 1, 2 or 4, over threads,
// processes and both. All end in the bits of one device, and so does a training that goes on under another division.
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/transformerlayer.h>

#include <array>
#include <functional>

#include "lockstep/context/stages.h"
#include "lockstep/models/clouds/minkunet.h"
#include "lockstep/models/registry.h"
#include "lockstep/norm/sync_batch_norm.h"
#include "lockstep/numerics/random.h"
#include "lockstep/parallel/split.h"
#include "support/clouds.h"
#include "support/team/placements.h"

namespace lockstep::models {
namespace {

using at::Tensor;
using parallel::Replica;
using test::State;
namespace nn = torch::nn;

constexpr int64_t kExamples = 13;  // three of eight replicas have a single one
constexpr int64_t kClasses = 5;
constexpr int64_t kSlices = 4;

/// Two layers have the same weights, in stages that must stay together.
struct TiedMlpImpl : nn::Cloneable<TiedMlpImpl>, Staged {
  TiedMlpImpl() { reset(); }
  void reset() override {
    for (size_t l = 0; l < layers.size(); ++l)
      layers[l] = register_module("layer" + std::to_string(l), nn::Linear(6, 6));
    out = register_module("out", nn::Linear(6, kClasses));
    dropout = register_module("dropout", nn::Dropout(0.3));
  }
  std::vector<Stage> stages() override {
    const auto hidden = [this](size_t layer) {
      return [this, layer](const Tensor& x) { return dropout(torch::relu(layers[layer](x))); };
    };
    return {{"first", hidden(0)},
            {"tied", hidden(1)},
            {"again", hidden(1)},
            {"next", hidden(2)},
            {"out", [this](const Tensor& x) { return out(x); }}};
  }
  Tensor forward(const Tensor& x) { return fold<Tensor>(stages(), x); }

  std::array<nn::Linear, 3> layers{nullptr, nullptr, nullptr};
  nn::Linear out{nullptr};
  nn::Dropout dropout{nullptr};
};

/// Tokens [N, T], attention and layer norms in three blocks, with dropout.
struct TransformerImpl : nn::Cloneable<TransformerImpl>, Staged {
  TransformerImpl() { reset(); }
  void reset() override {
    embedding = register_module("embedding", nn::Embedding(20, 8));
    for (size_t b = 0; b < blocks.size(); ++b)
      blocks[b] = register_module(
          "block" + std::to_string(b),
          nn::TransformerEncoderLayer(nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(12).dropout(0.1)));
    head = register_module("head", nn::Linear(8, kClasses));
  }
  std::vector<Stage> stages() override {
    std::vector<Stage> all{{"embedding", [this](const Tensor& tokens) { return embedding(tokens).transpose(0, 1); }}};
    for (size_t b = 0; b < blocks.size(); ++b)
      all.emplace_back("block" + std::to_string(b), [this, b](const Tensor& x) { return blocks[b]->forward(x); });
    all.emplace_back("head", [this](const Tensor& x) { return head(x.mean(0)); });
    return all;
  }
  Tensor forward(const Tensor& tokens) { return fold<Tensor>(stages(), tokens); }

  nn::Embedding embedding{nullptr};
  std::array<nn::TransformerEncoderLayer, 3> blocks{nullptr, nullptr, nullptr};
  nn::Linear head{nullptr};
};

struct Batch {
  Input inputs;
  Tensor targets;
};

Tensor normal(at::IntArrayRef shape, int64_t step) {
  return normal_(at::empty(shape), RandomKey{9}.fold(static_cast<uint64_t>(step)));
}

Batch share(Replica& me, const Tensor& inputs) {
  return {me.share_of(inputs), me.share_of(at::arange(kExamples).remainder(kClasses))};
}

Batch images(Replica& me, int64_t step) {
  return share(me, normal({kExamples, 2, 16, 16}, step));
}
Batch rows(Replica& me, int64_t step) {
  return share(me, normal({kExamples, 6}, step));
}
Batch tokens(Replica& me, int64_t step) {
  return share(me, (normal({kExamples, 4}, step) * 9).floor().remainder(20).to(at::kLong));
}
/// A cloud a replica, each of its own size; the last has two voxels.
Batch clouds(Replica& me, int64_t step) {
  const int64_t voxels = me.number() == 7 ? 2 : 40 + 20 * me.number();
  const Tensor points =
      sparse::CoordinateMap::insert(
          sparse::test::random_cloud(voxels, 3, -6, 6, 1, static_cast<uint32_t>(8 * step + me.number())))
          .map->coordinates()
          .clone();
  return {sparse::SparseTensor(normal({points.size(0), 3}, step), points),
          at::arange(points.size(0)).remainder(kClasses)};
}

std::shared_ptr<Classifier> of_registry(const std::string& name, norm::BatchNormMode norms) {
  Options options{.input = {2, 16, 16}, .classes = kClasses};
  const Registry registry = builtin();
  for (const Setting& setting : registry.find(name).settings)
    if (setting.name == "width") options.settings["width"] = "0.0625";
  auto network = make(name, options);
  norm::convert_sync_batchnorm(*network, norms);
  return network;
}

/// With an eighth of the channels.
std::shared_ptr<Classifier> minkunet14a() {
  MinkUNetOptions options = MinkUNetOptions::variant("14A", 3, kClasses);
  for (int64_t& planes : options.planes) planes /= 8;
  const MinkUNet network(options);
  norm::convert_sync_batchnorm(network, norm::BatchNormMode::ghost);
  return Classifier::of(network);
}

struct Network {
  const char* name;
  std::function<std::shared_ptr<Classifier>()> make;
  Batch (*batch)(Replica& me, int64_t step);
  bool is_dense = true;
};
void PrintTo(const Network& network, std::ostream* out) {
  *out << network.name;
}

std::vector<Network> networks() {
  using norm::BatchNormMode;
  const auto registered = [](const char* name, BatchNormMode norms) {
    return [=] { return of_registry(name, norms); };
  };
  return {{"LeNet", registered("lenet", BatchNormMode::ghost), images},
          {"MlpWithDropoutAndTiedWeights", [] { return Classifier::of(std::make_shared<TiedMlpImpl>()); }, rows},
          {"ResNet18Ghost", registered("resnet18", BatchNormMode::ghost), images},
          {"ResNet18Synchronised", registered("resnet18", BatchNormMode::synchronised), images},
          {"Transformer", [] { return Classifier::of(std::make_shared<TransformerImpl>()); }, tokens},
          {"MinkUNet14A", minkunet14a, clouds, false}};
}

struct Division {
  int processes;
  const char* devices;
  const char* split;
  int copies = processes;  ///< of the network: processes that are its parts have one together

  /// Whether this is the first replica of its process.
  bool begins_with(const Replica& me) const { return me.number() % (me.replicas() / copies) == 0; }
};

constexpr Division kThreads[] = {{1, "cpu:2", "data"}, {1, "cpu:4", "data"}, {1, "cpu:2", "p2"}, {1, "cpu:4", "p2"},
                                 {1, "cpu:8", "p2"},   {1, "cpu:4", "p4"},   {1, "cpu:8", "p4"}};
constexpr Division kSharers[] = {{1, "cpu:2", "t2"},   {1, "cpu:4", "t2"},   {1, "cpu:8", "t2"},
                                 {1, "cpu:4", "t4"},   {1, "cpu:8", "t4"},   {1, "cpu:4", "p2t2"},
                                 {1, "cpu:8", "p2t2"}, {1, "cpu:8", "p2t4"}, {1, "cpu:8", "p4t2"}};
// Processes that divide the batch; their threads divide the rest.
constexpr Division kBoth[] = {{2, "cpu:1", "data"}, {4, "cpu:1", "data"}, {2, "cpu:2", "data"},
                              {2, "cpu:2", "p2"},   {2, "cpu:4", "p2"},   {2, "cpu:4", "p4"}};
constexpr Division kBothSharers[] = {{2, "cpu:2", "t2"}, {2, "cpu:4", "t4"}, {2, "cpu:4", "p2t2"}};
constexpr Division kParts[] = {{2, "cpu:1", "p2", 1}, {4, "cpu:1", "p2", 2}, {4, "cpu:1", "p4", 1}};
constexpr Division kPartSharers[] = {{2, "cpu:2", "p2t2", 1}, {4, "cpu:2", "p2t2", 2}, {2, "cpu:4", "p2t4", 1}};
// For networks whose slices can't be shared, so that they have as many.
constexpr Division kMore[] = {{1, "cpu:8", "data"},  {1, "cpu:3", "p2"},   {1, "cpu:6", "p2"}, {1, "cpu:6", "p4"},
                              {4, "cpu:2", "data"},  {4, "cpu:2", "p2"},   {2, "cpu:3", "p2"}, {8, "cpu:1", "p2", 4},
                              {8, "cpu:1", "p4", 2}, {4, "cpu:2", "p4", 1}};

std::vector<Division> divisions_of(const Network& network) {
  std::vector<Division> all;
  const auto add = [&](const auto& list) { all.insert(all.end(), std::begin(list), std::end(list)); };
  add(kThreads);
  if (network.is_dense) add(kSharers);
  if (!test::joins_ranks()) return all;
  add(kBoth);
  if (network.is_dense) add(kBothSharers);
  add(kParts);
  if (network.is_dense)
    add(kPartSharers);
  else
    add(kMore);
  return all;
}

void load(const State& state, Classifier& network) {
  const at::NoGradGuard no_grad;
  for (auto& item : network.named_parameters()) item.value().copy_(state.at("weight." + item.key()));
  for (auto& item : network.named_buffers()) item.value().copy_(state.at("buffer." + item.key()));
}

/// Steps from `from` to `to`, beginning with what `begin` holds, if anything.
State train(const Network& what, const Division& division, int64_t from, int64_t to, const State& begin = {}) {
  const parallel::TeamOptions recipe{
      .replicas = 8, .seed = 4, .slices = what.is_dense ? kSlices : 1, .split = parallel::parse_split(division.split)};
  return test::run_placed({division.processes, division.devices}, recipe, [&](Replica& me) {
    auto made = what.make();
    if (!begin.empty()) load(begin, *made);
    const auto network = me.share(made);
    auto optimizer = me.optimizer(parallel::Sgd{.lr = 0.05, .momentum = 0.9}, {.clip_norm = 1});
    if (!begin.empty() && division.begins_with(me)) {
      std::map<std::string, Tensor> state;
      for (const auto& [name, tensor] : begin)
        if (name.starts_with("optimizer.")) state[name.substr(10)] = tensor;
      optimizer.load_state_dict(state);
    }
    me.set_steps(from);
    me.barrier();
    for (int64_t step = from; step < to; ++step) {
      const Batch batch = what.batch(me, step);
      const Tensor loss = nn::functional::cross_entropy(network->forward(batch.inputs), batch.targets);
      me.step(loss, optimizer, static_cast<double>(batch.targets.size(0)));
    }
    return test::state_of(me, *network, optimizer);
  });
}

class Divided : public testing::TestWithParam<Network> {};

TEST_P(Divided, EndsInTheBitsOfOneDevice) {
  const State whole = train(GetParam(), {1, "cpu:1", "data"}, 0, 2);
  ASSERT_FALSE(whole.empty());
  for (const Division& division : divisions_of(GetParam())) {
    SCOPED_TRACE(testing::Message() << division.processes << "x " << division.devices << ":" << division.split);
    test::expect_equal(train(GetParam(), division, 0, 2), whole);
  }
}

TEST_P(Divided, GoesOnUnderAnotherDivision) {
  const State whole = train(GetParam(), {1, "cpu:2", "data"}, 0, 6);
  std::vector<Division> chain{{1, "cpu:4", "p2"}, {1, "cpu:2", "data"}, {1, "cpu:4", "p4"}};
  if (GetParam().is_dense) chain[1] = {1, "cpu:4", "p2t2"};
  if (GetParam().is_dense && test::joins_ranks()) chain[2] = {4, "cpu:1", "p2", 2};
  State state;
  for (size_t link = 0; link < chain.size(); ++link)
    state = train(GetParam(), chain[link], static_cast<int64_t>(2 * link), static_cast<int64_t>(2 * link + 2), state);
  test::expect_equal(state, whole);
}

INSTANTIATE_TEST_SUITE_P(Of, Divided, testing::ValuesIn(networks()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace lockstep::models
