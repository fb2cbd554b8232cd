// SPDX-License-Identifier: Apache-2.0
// What is not a convolution.
#include <ATen/core/Tensor.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>

#include "cuda/areas.h"
#include "cuda/timing.h"
#include "lockstep/comm/detail/reduce.h"
#include "lockstep/norm/detail/row_kernels.h"
#include "lockstep/norm/sync_batch_norm.h"
#include "lockstep/numerics/random.h"

namespace lockstep::bench {
namespace {

using Json = nlohmann::json;

const at::Device kGpu(at::kCUDA, 0);

std::vector<at::Tensor> copies_of(at::IntArrayRef sizes, at::ScalarType type) {
  std::vector<at::Tensor> copies;
  for (int copy = 0; copy < kCopies; ++copy) copies.push_back(at::randn(sizes, at::TensorOptions(type).device(kGpu)));
  return copies;
}

double gigabytes(const at::Tensor& tensor, double passes) {
  return passes * 1e-9 * static_cast<double>(tensor.nbytes());
}

/// Layers' forward passes in training, over images or over rows.
Json measure_layer(const std::string& name, const std::vector<at::Tensor>& x, int rounds) {
  const int64_t channels = x[0].size(1);
  const auto floats = at::TensorOptions(at::kFloat).device(kGpu);
  const at::Tensor w = at::ones({channels}, floats), b = at::zeros({channels}, floats);
  const at::Tensor mean = at::zeros({channels}, floats), variance = at::ones({channels}, floats);
  const auto layer = [&](norm::BatchNormMode mode) {
    return [&, mode](int i) { norm::sync_batch_norm(x[i], w, b, mean, variance, 0.1, 1e-5, mode, nullptr); };
  };
  std::vector<Contender> contenders{
      {"ours, ghost", layer(norm::BatchNormMode::ghost)},
      {"ours, synchronised", layer(norm::BatchNormMode::synchronised)},
      {"libtorch", [&](int i) { at::batch_norm(x[i], w, b, mean, variance, true, 0.1, 1e-5, true); }}};
  if (x[0].dim() == 2)
    contenders.push_back({"ours, of rows: moments", [&](int i) { norm::cuda::column_moments(x[i]); }});
  return compare("batch norm, " + name, "GB/s", gigabytes(x[0], 3), contenders, rounds);
}

}  // namespace

Json measure_batch_norms(int rounds) {
  Json out;
  for (const auto type : {at::kHalf, at::kFloat}) {
    const std::string name = std::string("64 x 64 x 56 x 56, ") + c10::toString(type);
    auto images = copies_of({64, 64, 56, 56}, type);
    out[name] = measure_layer(name, images, rounds);
    for (at::Tensor& image : images) image = image.contiguous(at::MemoryFormat::ChannelsLast);
    out[name + ", channels last"] = measure_layer(name + ", channels last", images, rounds);
    const std::string rows = std::string("100,000 rows of 64, ") + c10::toString(type);
    out[rows] = measure_layer(rows, copies_of({100000, 64}, type), rounds);
  }
  return out;
}

Json measure_reductions(int rounds) {
  Json out;
  for (const int64_t sources : {2, 8, 64, 200}) {
    const int64_t count = (int64_t{1} << 28) / sources;  // 1 GB of sources in all
    const at::Tensor all = at::randn({sources, count}, at::TensorOptions(at::kFloat).device(kGpu));
    const at::Tensor sum = at::empty_like(all[0]), copy = at::empty_like(all);
    std::vector<const std::byte*> from;
    for (int64_t s = 0; s < sources; ++s) from.push_back(static_cast<const std::byte*>(all[s].const_data_ptr()));
    std::byte* const to = static_cast<std::byte*>(sum.mutable_data_ptr());
    const auto program = TreeProgram::of_leaves(sources);
    const std::string name = std::to_string(sources) + " sources";
    out[name] = compare("sum of " + name, "GB/s of sources", gigabytes(all, 1),
                        {{"ours",
                          [&](int) {
                            comm::reduce_on(kGpu, program, ReduceOp::sum, at::kFloat, from, {&to, 1}, count);
                          }},
                         {"libtorch's sum, in another order", [&](int) { all.sum(0); }},
                         {"a copy of as many bytes", [&](int) { copy.copy_(all); }}},
                        rounds);
  }
  return out;
}

Json measure_random_numbers(int rounds) {
  const auto tensors = copies_of({int64_t{1} << 26}, at::kFloat);
  const RandomKey key{.seed = 7};
  Json out;
  out["uniform"] = compare(
      "uniform numbers", "GB/s", gigabytes(tensors[0], 1),
      {{"ours", [&](int i) { uniform_(tensors[i], key); }}, {"libtorch", [&](int i) { tensors[i].uniform_(); }}},
      rounds);
  out["normal"] = compare(
      "normal numbers", "GB/s", gigabytes(tensors[0], 1),
      {{"ours", [&](int i) { normal_(tensors[i], key); }}, {"libtorch", [&](int i) { tensors[i].normal_(); }}}, rounds);
  return out;
}

}  // namespace lockstep::bench
