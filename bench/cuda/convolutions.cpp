// SPDX-License-Identifier: Apache-2.0
// Sparse convolutions against gather, cuBLAS and scatter through libtorch, which is MinkowskiEngine's method, and
// against a dense convolution of as many products: what the GPU's arithmetic gives where all is regular.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "cuda/areas.h"
#include "cuda/timing.h"
#include "lockstep/base/error.h"
#include "lockstep/sparse/kernel_map.h"
#include "lockstep/sparse/kernel_region.h"
#include "sparse/maps/cuda/tables.h"
#include "sparse/ops/kernels.h"
#include "support/rooms.h"

namespace lockstep::bench {
namespace {

using namespace lockstep::sparse;
using Json = nlohmann::json;

const at::Device kGpu(at::kCUDA, 0);

KernelMapPtr map_of(int64_t voxels, int64_t size = 3) {
  const auto room = CoordinateMap::insert(make_room(voxels, 1, false)).map;
  const std::vector<int64_t> ones = {1, 1, 1};
  return KernelMap::build(room, room, KernelRegion::hypercube({size, size, size}, ones).offsets(ones));
}

/// For each offset the rows of its pairs, on the GPU.
class GatherScatter {
 public:
  explicit GatherScatter(const KernelMap& map) : map_(map) {
    for (int64_t k = 0; k < map.volume(); ++k) rows_.push_back(map.rows(k).to(kGpu));
  }
  void forward(const at::Tensor& x, const at::Tensor& w, const at::Tensor& y) const {
    y.zero_();
    for (int64_t k = 0; k < map_.volume(); ++k)
      y.index_add_(0, rows_[k][1], at::mm(x.index_select(0, rows_[k][0]), w[k]));
  }
  void weight_gradient(const at::Tensor& x, const at::Tensor& g, const at::Tensor& dw) const {
    for (int64_t k = 0; k < map_.volume(); ++k) {
      at::Tensor target = dw[k];
      at::mm_out(target, x.index_select(0, rows_[k][0]).t(), g.index_select(0, rows_[k][1]));
    }
  }

 private:
  const KernelMap& map_;
  std::vector<at::Tensor> rows_;
};

/// Inputs, weights and gradients of one layer, in copies.
struct Layer {
  std::vector<at::Tensor> x, w, g;

  Layer(const KernelMap& map, int64_t in, int64_t out, at::ScalarType type) {
    const auto options = at::TensorOptions(type).device(kGpu);
    for (int copy = 0; copy < kCopies; ++copy) {
      x.push_back(at::randn({map.in_size(), in}, options));
      w.push_back(at::randn({map.volume(), in, out}, options) * 0.05);
      g.push_back(at::randn({map.out_size(), out}, options));
    }
  }
};

/// A 3x3 convolution of an image with as many products as the map has pairs.
Contender dense_convolution(const KernelMap& map, int64_t channels, at::ScalarType type) {
  const auto side = static_cast<int64_t>(std::sqrt(static_cast<double>(map.pair_count()) / 9));
  const auto options = at::TensorOptions(type).device(kGpu);
  std::vector<at::Tensor> x, w;
  for (int copy = 0; copy < kCopies; ++copy) {
    x.push_back(at::randn({1, channels, side, side}, options).contiguous(at::MemoryFormat::ChannelsLast));
    w.push_back(at::randn({channels, channels, 3, 3}, options).contiguous(at::MemoryFormat::ChannelsLast));
  }
  return {"dense 3x3, as many products", [x, w](int i) { at::conv2d(x[i], w[i], {}, 1, 1); }};
}

Json measure_layer(const KernelMapPtr& map, const GatherScatter& other, int64_t in, int64_t out_channels,
                   at::ScalarType type, int rounds) {
  const Layer layer(*map, in, out_channels, type);
  const KernelMapPtr back = map->transposed();
  const at::Tensor y = at::empty_like(layer.g[0]), dw = at::empty_like(layer.w[0]);
  const double work = 2e-9 * static_cast<double>(map->pair_count() * in * out_channels);
  const std::string name = text(in, " to ", out_channels, " channels, ", c10::toString(type), ", ");
  const auto& [x, w, g] = layer;
  std::vector<Contender> contenders{{"ours", [&](int i) { convolution(x[i], w[i], map, false, 1); }},
                                    {"gather, cuBLAS, scatter", [&](int i) { other.forward(x[i], w[i], y); }}};
  if (in == out_channels) contenders.push_back(dense_convolution(*map, in, type));
  Json out;
  out["forward"] = compare(name + "forward", "GFLOP/s", work, contenders, rounds);
  out["input gradient"] = compare(name + "input gradient", "GFLOP/s", work,
                                  {{"ours", [&](int i) { convolution(g[i], w[i], back, true, 1); }}}, rounds);
  out["weight gradient"] = compare(name + "weight gradient", "GFLOP/s", work,
                                   {{"ours", [&](int i) { convolution_weight(x[i], g[i], map, 1); }},
                                    {"gather, cuBLAS", [&](int i) { other.weight_gradient(x[i], g[i], dw); }}},
                                   rounds);
  return out;
}

}  // namespace

Json measure_convolutions(const std::vector<int64_t>& voxels, int rounds) {
  Json all;
  for (const int64_t size : voxels) {
    const KernelMapPtr map = map_of(size);
    std::printf("room of %lld voxels, %.2f million pairs\n", static_cast<long long>(map->in_size()),
                static_cast<double>(map->pair_count()) * 1e-6);
    const GatherScatter other(*map);
    Json& room = all[std::to_string(size)];
    // A map keeps its table, so each turn has maps of its own.
    std::vector<KernelMapPtr> fresh;
    for (int i = 0; i < kCalls * (rounds + 1); ++i) fresh.push_back(map_of(2000));
    size_t next = 0;
    room["table of 2000 voxels"] =
        compare("kernel table of 2000 voxels", "tables/s", 1,
                {{"ours", [&](int) { cuda::table_on_device(*fresh[next++], kGpu); }}}, rounds);
    for (const int64_t channels : {32, 64, 128})
      for (const auto type : {at::kHalf, at::kFloat})
        room[text(channels, " ", c10::toString(type))] = measure_layer(map, other, channels, channels, type, rounds);
    // The first layer of a network, and a deep one.
    const KernelMapPtr first = map_of(size, 5), deep = map_of(2000);
    const GatherScatter of_first(*first), of_deep(*deep);
    for (const auto type : {at::kHalf, at::kFloat}) {
      room[text("3 to 32, 5x5x5, ", c10::toString(type))] = measure_layer(first, of_first, 3, 32, type, rounds);
      room[text("2000 voxels, 256 ", c10::toString(type))] = measure_layer(deep, of_deep, 256, 256, type, rounds);
    }
  }
  return all;
}

}  // namespace lockstep::bench
