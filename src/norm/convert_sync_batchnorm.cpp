// SPDX-License-Identifier: Apache-2.0
#include "lockstep/norm/sync_batch_norm.h"

#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>

#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/context/detail/batch_norm_mark.h"
#include "lockstep/context/overrides.h"
#include "lockstep/norm/detail/batch_norm_hook.h"

namespace lockstep::norm {
namespace {

at::Tensor carrier_of(const at::Tensor& running_mean, const at::Tensor& weight) {
  return running_mean.defined() ? running_mean : weight;
}

/// Calls work(carrier of the mark) where `module` is a batch norm; an undefined one where it has nothing to mark.
template <class Work>
bool with_batch_norm(const torch::nn::Module& module, const Work& work) {
  const auto visit = [&](const auto* layer) {
    if (layer != nullptr) work(carrier_of(layer->running_mean, layer->weight));
    return layer != nullptr;
  };
  return visit(dynamic_cast<const torch::nn::BatchNorm1dImpl*>(&module)) ||
         visit(dynamic_cast<const torch::nn::BatchNorm2dImpl*>(&module)) ||
         visit(dynamic_cast<const torch::nn::BatchNorm3dImpl*>(&module));
}

/// What converted layers call.
struct Converted {
  BatchNormMode mode;

  at::Tensor operator()(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                        const at::Tensor& running_mean, const at::Tensor& running_var, double momentum,
                        double epsilon) const {
    return sync_batch_norm(x, weight, bias, running_mean, running_var, momentum, epsilon, mode, current_peers());
  }
};

bool is_synchronised(const BatchNormFunction* function) {
  const auto* converted = function == nullptr ? nullptr : function->target<Converted>();
  return converted != nullptr && converted->mode == BatchNormMode::synchronised;
}

/// Calls work(name, module) for the module and all below it. (named_modules() wants a shared pointer of the root.)
template <class Work>
void for_each_module(const std::string& name, const torch::nn::Module& module, const Work& work) {
  work(name, module);
  for (const auto& child : module.named_children())
    for_each_module(name.empty() ? child.key() : name + "." + child.key(), *child.value(), work);
}

}  // namespace

int64_t convert_sync_batchnorm(const torch::nn::Module& module, BatchNormMode mode) {
  install_overrides();
  const BatchNormFunction function = Converted{mode};
  int64_t converted = 0;
  for_each_module("", module, [&](const std::string& name, const torch::nn::Module& each) {
    converted += with_batch_norm(each, [&](const at::Tensor& carrier) {
      require(carrier.defined(), "convert_sync_batchnorm", "layer '", name,
              "' has neither running statistics nor weights, expected affine or track_running_stats");
      mark_batch_norm(carrier, function);
    });
    if (const auto* hook = dynamic_cast<const BatchNormHook*>(&each)) {
      hook->set_training_function(function);
      ++converted;
    }
  });
  return converted;
}

bool has_synchronised(const torch::nn::Module& module) {
  bool found = false;
  for_each_module("", module, [&](const std::string&, const torch::nn::Module& each) {
    with_batch_norm(each, [&](const at::Tensor& carrier) { found |= is_synchronised(batch_norm_mark(carrier)); });
    const auto* hook = dynamic_cast<const BatchNormHook*>(&each);
    found |= hook != nullptr && is_synchronised(&hook->training_function());
  });
  return found;
}

void copy_marks(const torch::nn::Module& from, const torch::nn::Module& to) {
  const auto carriers_in = [](const torch::nn::Module& module) {
    std::vector<at::Tensor> carriers;
    for_each_module("", module, [&](const std::string&, const torch::nn::Module& each) {
      with_batch_norm(each, [&](const at::Tensor& carrier) { carriers.push_back(carrier); });
    });
    return carriers;
  };
  const std::vector<at::Tensor> sources = carriers_in(from), targets = carriers_in(to);
  require(sources.size() == targets.size(), "copy_marks", "the modules have ", sources.size(), " and ", targets.size(),
          " batch norms, expected copies of each other");
  for (size_t i = 0; i < sources.size(); ++i) copy_batch_norm_mark(sources[i], targets[i]);
}

}  // namespace lockstep::norm
