// SPDX-License-Identifier: Apache-2.0
#include "lockstep/models/images/group_convolution.h"

#include <ATen/ops/amax.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/argsort.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/init.h>

#include <array>
#include <cmath>
#include <map>
#include <tuple>
#include <vector>

#include "lockstep/base/detail/guarded.h"
#include "lockstep/base/error.h"

namespace lockstep::models {
namespace {

/// Row g of a table [G, J] says which of the J numbers of a filter stand where once it is moved by element g.
struct Tables {
  at::Tensor forward;
  /// Row g undoes row g.
  at::Tensor backward;
};

// Number a * K * K + p of a row is position p of the filter of element a: of all elements, or of one (lifting).
at::Tensor rows(Symmetry symmetry, int64_t kernel, bool lifting) {
  const int64_t area = kernel * kernel;
  const auto grid = at::arange(area, at::kLong).view({kernel, kernel});
  std::vector<at::Tensor> table;
  for (int64_t g = 0; g < order(symmetry); ++g) {
    const auto positions = move(grid, g).flatten();
    std::vector<at::Tensor> row;
    if (lifting)
      row.push_back(positions);
    else
      for (int64_t h = 0; h < order(symmetry); ++h) row.push_back(compose(inverse(g), h) * area + positions);
    table.push_back(at::stack(row).flatten());
  }
  return at::stack(table);
}

// Tables are made once for each kind of layer and device and never changed.
Tables tables(Symmetry symmetry, int64_t kernel, bool lifting, at::Device device) {
  static Mutex mutex;
  static std::map<std::tuple<Symmetry, int64_t, bool, at::DeviceType, int>, Tables> known LOCKSTEP_GUARDED_BY(mutex);
  const Lock lock(mutex);
  Tables& entry = known[{symmetry, kernel, lifting, device.type(), device.index()}];
  if (!entry.forward.defined()) {
    const c10::InferenceMode off(false);  // they will be saved for backward passes, whoever comes first
    const auto table = rows(symmetry, kernel, lifting);
    entry = {table.to(device), at::argsort(table, int64_t{1}).to(device)};
  }
  return entry;
}

/// [M, J] -> [M, G, J], by a table. Its backward pass reads the gradients through the inverse table and adds them up
/// over g, where that of index_select would scatter them.
struct Pick : torch::autograd::Function<Pick> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& filters,
                            const at::Tensor& forward_table, const at::Tensor& backward_table) {
    context->save_for_backward({forward_table, backward_table});
    return filters.index_select(1, forward_table.flatten()).view({filters.size(0), -1, filters.size(1)});
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor& backward_table = saved[1];
    const int64_t size = backward_table.size(1);
    const auto first = at::arange(backward_table.size(0), backward_table.options()).unsqueeze(1) * size;
    const auto picked = gradients[0].flatten(1).index_select(1, (first + backward_table).flatten());
    return {picked.view({picked.size(0), -1, size}).sum(1), {}, {}};
  }
};

at::Tensor pick(const at::Tensor& filters, Symmetry symmetry, int64_t kernel, bool lifting) {
  const Tables table = tables(symmetry, kernel, lifting, filters.device());
  return Pick::apply(filters, table.forward, table.backward);
}

void check_layer(const char* layer, int64_t in, int64_t out, int64_t kernel) {
  require(in > 0 && out > 0, layer, "there are ", in, " inputs and ", out, " outputs, expected at least 1 of each");
  require(kernel > 0 && kernel % 2 == 1, layer, "the kernel is ", kernel,
          ", expected an odd number: it needs a centre to be moved about");
}

at::Tensor make_weight(at::IntArrayRef sizes) {
  auto weight = at::empty(sizes);
  torch::nn::init::kaiming_uniform_(weight, std::sqrt(5));  // as torch's convolutions begin
  return weight;
}

}  // namespace

at::Tensor lifting_filters(const at::Tensor& weight, Symmetry symmetry) {
  require(weight.dim() == 4 && weight.size(2) == weight.size(3), "lifting_filters", "the weight is ", weight.sizes(),
          ", expected [out, in, K, K]");
  const int64_t out = weight.size(0), in = weight.size(1), kernel = weight.size(2);
  return pick(weight.reshape({out * in, kernel * kernel}), symmetry, kernel, true)
      .view({out, in, -1, kernel, kernel})
      .permute({2, 0, 1, 3, 4})
      .reshape({-1, in, kernel, kernel});
}

at::Tensor group_filters(const at::Tensor& weight, Symmetry symmetry) {
  const int64_t elements = order(symmetry);
  require(weight.dim() == 5 && weight.size(2) == elements && weight.size(3) == weight.size(4), "group_filters",
          "the weight is ", weight.sizes(), ", expected [out, in, ", elements, ", K, K]");
  const int64_t out = weight.size(0), in = weight.size(1), kernel = weight.size(3);
  return pick(weight.reshape({out * in, elements * kernel * kernel}), symmetry, kernel, false)
      .view({out, in, elements, elements, kernel, kernel})
      .permute({2, 0, 3, 1, 4, 5})
      .reshape({elements * out, elements * in, kernel, kernel});
}

at::Tensor group_pool(const at::Tensor& features, Symmetry symmetry) {
  const int64_t elements = order(symmetry);
  require(features.dim() == 4 && features.size(1) % elements == 0, "group_pool", "features are ", features.sizes(),
          ", expected [N, ", elements, " * C, H, W]");
  return at::amax(features.unflatten(1, {elements, features.size(1) / elements}), 1);
}

LiftingConv2dImpl::LiftingConv2dImpl(Symmetry symmetry, int64_t in, int64_t out, int64_t kernel)
    : symmetry(symmetry), in(in), out(out), kernel(kernel) {
  check_layer("LiftingConv2d", in, out, kernel);
  LiftingConv2dImpl::reset();
}

void LiftingConv2dImpl::reset() {
  weight = register_parameter("weight", make_weight({out, in, kernel, kernel}));
}

at::Tensor LiftingConv2dImpl::forward(const at::Tensor& x) {
  return at::conv2d(x, lifting_filters(weight, symmetry), {}, 1, kernel / 2);
}

GroupConv2dImpl::GroupConv2dImpl(Symmetry symmetry, int64_t in, int64_t out, int64_t kernel)
    : symmetry(symmetry), in(in), out(out), kernel(kernel) {
  check_layer("GroupConv2d", in, out, kernel);
  GroupConv2dImpl::reset();
}

void GroupConv2dImpl::reset() {
  weight = register_parameter("weight", make_weight({out, in, order(symmetry), kernel, kernel}));
}

at::Tensor GroupConv2dImpl::forward(const at::Tensor& x) {
  return at::conv2d(x, group_filters(weight, symmetry), {}, 1, kernel / 2);
}

GroupBatchNorm2dImpl::GroupBatchNorm2dImpl(Symmetry symmetry, int64_t features)
    : symmetry(symmetry), features(features) {
  require(features > 0, "GroupBatchNorm2d", "there are ", features, " features, expected at least 1");
  GroupBatchNorm2dImpl::reset();
}

void GroupBatchNorm2dImpl::reset() {
  norm = register_module("norm", torch::nn::BatchNorm2d(features));
}

// The elements go where they lie beside each other in memory already, so that nothing is copied: with channels last
// into the width, [N, H, W * G, C] there, else into the examples.
at::Tensor GroupBatchNorm2dImpl::forward(const at::Tensor& x) {
  const int64_t elements = order(symmetry);
  require(x.dim() == 4 && x.size(1) == elements * features, "GroupBatchNorm2d", "features are ", x.sizes(),
          ", expected [N, ", elements, " * ", features, ", H, W]");
  if (x.suggest_memory_format() == at::MemoryFormat::ChannelsLast) {
    const auto last = x.permute({0, 2, 3, 1});
    const auto joined = last.reshape({x.size(0), x.size(2), x.size(3) * elements, features}).permute({0, 3, 1, 2});
    return norm(joined).permute({0, 2, 3, 1}).reshape(last.sizes()).permute({0, 3, 1, 2});
  }
  return norm(x.reshape({x.size(0) * elements, features, x.size(2), x.size(3)})).reshape(x.sizes());
}

}  // namespace lockstep::models
