// SPDX-License-Identifier: Apache-2.0
#include "lockstep/models/clouds/minkunet.h"

#include <ATen/ops/relu.h>

#include <algorithm>
#include <cctype>

#include "lockstep/base/detail/suggestions.h"
#include "lockstep/base/error.h"

namespace lockstep::models {
namespace {

namespace nn = sparse::nn;
using sparse::SparseTensor;

constexpr int64_t kUnetStemChannels = 32, kStemKernel = 5;
constexpr int64_t kLevels = 4;

SparseTensor relu(const SparseTensor& x) {
  return x.with_features(at::relu(x.features()));
}

nn::ConvolutionOptions resizing(const MinkUNetOptions& options, int64_t in, int64_t out) {
  return {in, out, {.dimension = options.dimension, .kernel_size = {2}, .stride = {2}}};
}

struct Variant {
  const char* name;
  nn::BlockKind block;
  std::array<int64_t, 8> layers, planes;
};

constexpr std::array<int64_t, 8> kOnes{1, 1, 1, 1, 1, 1, 1, 1}, kTwos{2, 2, 2, 2, 2, 2, 2, 2},
    k34{2, 3, 4, 6, 2, 2, 2, 2}, k101{2, 3, 4, 23, 2, 2, 2, 2};
constexpr std::array<int64_t, 8> kA{32, 64, 128, 256, 128, 128, 96, 96}, kB{32, 64, 128, 256, 128, 128, 128, 128},
    kC{32, 64, 128, 256, 192, 192, 128, 128}, kD{32, 64, 128, 256, 384, 384, 384, 384},
    k34A{32, 64, 128, 256, 256, 128, 64, 64}, k34B{32, 64, 128, 256, 256, 128, 64, 32},
    k34C{32, 64, 128, 256, 256, 128, 96, 96};
constexpr auto kBasic = nn::BlockKind::basic, kBottleneck = nn::BlockKind::bottleneck;

constexpr Variant kVariants[] = {
    {"14", kBasic, kOnes, kA},  {"14A", kBasic, kOnes, kA},   {"14B", kBasic, kOnes, kB},    {"14C", kBasic, kOnes, kC},
    {"14D", kBasic, kOnes, kD}, {"18", kBasic, kTwos, kA},    {"18A", kBasic, kTwos, kA},    {"18B", kBasic, kTwos, kB},
    {"18D", kBasic, kTwos, kD}, {"34", kBasic, k34, k34A},    {"34A", kBasic, k34, k34A},    {"34B", kBasic, k34, k34B},
    {"34C", kBasic, k34, k34C}, {"50", kBottleneck, k34, kA}, {"101", kBottleneck, k101, kA}};

}  // namespace

const std::vector<std::string>& minkunet_variants() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Variant& variant : kVariants) all.emplace_back(variant.name);
    return all;
  }();
  return names;
}

MinkUNetOptions MinkUNetOptions::variant(const std::string& name, int64_t in_channels, int64_t out_channels,
                                         int64_t dimension) {
  std::string upper = name;
  std::ranges::transform(upper, upper.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  const auto* found = std::ranges::find(kVariants, upper, [](const Variant& one) { return std::string(one.name); });
  const auto& known = minkunet_variants();
  require(found != std::end(kVariants), "MinkUNet", "there is no variant '", name, "', expected ", one_of(known),
          did_you_mean(upper, known));
  return {in_channels, out_channels, dimension, found->block, found->layers, found->planes};
}

SparseTensor MinkUNetImpl::Level::resize(const SparseTensor& x) {
  return relu(norm(convolution(x)));
}

MinkUNetImpl::MinkUNetImpl(const MinkUNetOptions& options) : options(options) {
  require(options.in_channels > 0 && options.out_channels > 0, "MinkUNet", "channels are ", options.in_channels, " -> ",
          options.out_channels, ", expected at least 1 of each");
  require(std::ranges::min(options.planes) > 0, "MinkUNet", "a level has ", std::ranges::min(options.planes),
          " planes, expected at least 1");
  MinkUNetImpl::reset();
}

void MinkUNetImpl::reset() {
  down_.clear();
  up_.clear();
  skips_.clear();
  channels_ = kUnetStemChannels;
  first_ = register_module(
      "conv0p1s1",
      nn::Convolution(nn::ConvolutionOptions{
          options.in_channels, channels_, {.dimension = options.dimension, .kernel_size = {kStemKernel}}}));
  first_norm_ = register_module("bn0", nn::BatchNorm(channels_));
  for (int64_t level = 0; level < kLevels; ++level) add_down(level);
  for (int64_t level = 0; level < kLevels; ++level) add_up(level);
  final_ = register_module("final",
                           nn::Convolution(nn::ConvolutionOptions{channels_,
                                                                  options.out_channels,
                                                                  {.dimension = options.dimension, .kernel_size = {1}},
                                                                  /*bias=*/true}));
  initialise_as_minkowski(*this);
}

void MinkUNetImpl::add_blocks(Level& level, int64_t number, int64_t in_channels) {
  level.blocks = register_module("block" + std::to_string(number),
                                 ResidualStage(options.block, options.layers[number - 1],
                                               nn::BlockOptions{.in_channels = in_channels,
                                                                .planes = options.planes[number - 1],
                                                                .dimension = options.dimension}));
  channels_ = level.blocks->out_channels();
}

void MinkUNetImpl::add_down(int64_t level) {
  skips_.push_back(channels_);
  const std::string number = std::to_string(level + 1), stride = std::to_string(1 << level);
  Level& made = down_.emplace_back();
  made.convolution =
      register_module("conv" + number + "p" + stride + "s2", nn::Convolution(resizing(options, channels_, channels_)));
  made.norm = register_module("bn" + number, nn::BatchNorm(channels_));
  add_blocks(made, level + 1, channels_);
}

void MinkUNetImpl::add_up(int64_t level) {
  const int64_t planes = options.planes[kLevels + level], skip = skips_[kLevels - 1 - level];
  const std::string number = std::to_string(kLevels + level), stride = std::to_string(16 >> level);
  Level& made = up_.emplace_back();
  made.convolution =
      register_module("convtr" + number + "p" + stride + "s2",
                      nn::Convolution(nn::ConvolutionTranspose(resizing(options, channels_, planes)).ptr()));
  made.norm = register_module("bntr" + number, nn::BatchNorm(planes));
  add_blocks(made, kLevels + level + 1, planes + skip);
}

std::vector<Stage> MinkUNetImpl::stages() {
  std::vector<Stage> stages{
      Stage::of<SparseTensor>("conv0p1s1", [this](const SparseTensor& x) { return relu(first_norm_(first_(x))); })};
  const auto skip = [](int64_t resolution) { return "skip" + std::to_string(resolution); };
  for (int64_t l = 0; l < kLevels; ++l) {
    const std::string number = std::to_string(l + 1);
    stages.emplace_back("conv" + number, [this, l, skip](Bundle& x) {
      x.put(skip(l), x.get<SparseTensor>());
      x.put(down_[l].resize(x.get<SparseTensor>()));
    });
    down_[l].blocks->add_stages("block" + number + ".", stages);
  }
  for (int64_t l = 0; l < kLevels; ++l) {
    stages.emplace_back("convtr" + std::to_string(kLevels + l), [this, l, skip](Bundle& x) {
      const SparseTensor y = up_[l].resize(x.get<SparseTensor>());
      x.put(sparse::cat({y, x.take<SparseTensor>(skip(kLevels - 1 - l))}));
    });
    up_[l].blocks->add_stages("block" + std::to_string(kLevels + l + 1) + ".", stages);
  }
  stages.push_back(Stage::of<SparseTensor>("final", [this](const SparseTensor& x) { return final_(x); }));
  return stages;
}

SparseTensor MinkUNetImpl::forward(const SparseTensor& x) {
  return fold<SparseTensor>(stages(), x);
}

}  // namespace lockstep::models
