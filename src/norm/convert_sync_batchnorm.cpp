// SPDX-License-Identifier: Apache-2.0
#include "lockstep/norm/sync_batch_norm.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/batch_norm_native.h>
#include <torch/library.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>

#include <atomic>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <unordered_map>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/norm/detail/batch_norm_hook.h"

namespace lockstep::parallel {
namespace {

/// Which layers are marked. The key is the tensor that carries the mark; a weak pointer keeps its address from being
/// used again while the entry is there, so that no other tensor is ever taken for it.
class Marks {
 public:
  static Marks& instance() {
    static Marks marks;
    return marks;
  }

  /// The only cost of this file to an ordinary batch norm.
  bool any() const { return any_.load(std::memory_order_acquire); }

  void set(const at::Tensor& carrier, BatchNormMode mode) {
    const std::unique_lock lock(mutex_);
    if (marks_.size() >= sweep_at_) sweep();
    c10::weak_intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl> weak(carrier.getIntrusivePtr());
    marks_.insert_or_assign(carrier.unsafeGetTensorImpl(), Mark{std::move(weak), mode});
    any_.store(true, std::memory_order_release);
  }

  std::optional<BatchNormMode> find(const at::Tensor& carrier) const {
    const std::shared_lock lock(mutex_);
    const auto found = marks_.find(carrier.unsafeGetTensorImpl());
    return found == marks_.end() ? std::nullopt : std::optional(found->second.mode);
  }

 private:
  struct Mark {
    c10::weak_intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl> carrier;
    BatchNormMode mode;
  };

  /// Forgets what has died since the last time; at twice the number that remain it is looked at again.
  void sweep() {
    std::erase_if(marks_, [](const auto& entry) { return entry.second.carrier.expired(); });
    sweep_at_ = std::max<size_t>(64, 2 * marks_.size());
  }

  mutable std::shared_mutex mutex_;
  std::unordered_map<const at::TensorImpl*, Mark> marks_;
  size_t sweep_at_ = 64;
  std::atomic<bool> any_{false};
};

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

/// Calls work(name, module) for the module and all below it. (named_modules() wants a shared pointer of the root.)
template <class Work>
void for_each_module(const std::string& name, const torch::nn::Module& module, const Work& work) {
  work(name, module);
  for (const auto& child : module.named_children())
    for_each_module(name.empty() ? child.key() : name + "." + child.key(), *child.value(), work);
}

/// A batch norm of another layer than torch's.
bool set_hook(const torch::nn::Module& module, BatchNormMode mode) {
  const auto* hook = dynamic_cast<const BatchNormHook*>(&module);
  if (hook != nullptr)
    hook->set_training_function([mode](const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                                       const at::Tensor& running_mean, const at::Tensor& running_var, double momentum,
                                       double epsilon) {
      return sync_batch_norm(x, weight, bias, running_mean, running_var, momentum, epsilon, mode, current_peers());
    });
  return hook != nullptr;
}

at::Tensor value_or_undefined(const std::optional<at::Tensor>& given) {
  return given.value_or(at::Tensor());
}

/// at::batch_norm, in place of the composite that libtorch has for every key.
at::Tensor batch_norm(const at::Tensor& x, const std::optional<at::Tensor>& weight,
                      const std::optional<at::Tensor>& bias, const std::optional<at::Tensor>& running_mean,
                      const std::optional<at::Tensor>& running_var, bool training, double momentum, double epsilon,
                      bool cudnn_enabled) {
  const Marks& marks = Marks::instance();
  if (training && marks.any()) {
    const at::Tensor mean = value_or_undefined(running_mean), scale = value_or_undefined(weight);
    const at::Tensor carrier = carrier_of(mean, scale);
    if (const auto mode = carrier.defined() ? marks.find(carrier) : std::nullopt)
      return sync_batch_norm(x, scale, value_or_undefined(bias), mean, value_or_undefined(running_var), momentum,
                             epsilon, *mode, current_peers());
  }
  return at::native::batch_norm(x, weight, bias, running_mean, running_var, training, momentum, epsilon, cudnn_enabled);
}

// Inference mode skips the autograd keys: the plain ones are needed too.
TORCH_LIBRARY_IMPL(aten, AutogradCPU, library) {
  library.impl("batch_norm", TORCH_FN(batch_norm));
}
TORCH_LIBRARY_IMPL(aten, AutogradCUDA, library) {
  library.impl("batch_norm", TORCH_FN(batch_norm));
}
TORCH_LIBRARY_IMPL(aten, CPU, library) {
  library.impl("batch_norm", TORCH_FN(batch_norm));
}
TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("batch_norm", TORCH_FN(batch_norm));
}

}  // namespace

int64_t convert_sync_batchnorm(const torch::nn::Module& module, BatchNormMode mode) {
  int64_t converted = 0;
  for_each_module("", module, [&](const std::string& name, const torch::nn::Module& each) {
    converted += with_batch_norm(each, [&](const at::Tensor& carrier) {
      require(carrier.defined(), "convert_sync_batchnorm", "layer '", name,
              "' has neither running statistics nor weights, expected affine or track_running_stats");
      Marks::instance().set(carrier, mode);
    });
    converted += set_hook(each, mode);
  });
  return converted;
}

void copy_marks(const torch::nn::Module& from, const torch::nn::Module& to) {
  if (!Marks::instance().any()) return;
  std::vector<at::Tensor> sources, targets;
  for_each_module("", from, [&](const std::string&, const torch::nn::Module& each) {
    with_batch_norm(each, [&](const at::Tensor& carrier) { sources.push_back(carrier); });
  });
  for_each_module("", to, [&](const std::string&, const torch::nn::Module& each) {
    with_batch_norm(each, [&](const at::Tensor& carrier) { targets.push_back(carrier); });
  });
  require(sources.size() == targets.size(), "copy_marks", "the modules have ", sources.size(), " and ", targets.size(),
          " batch norms, expected copies of each other");
  for (size_t i = 0; i < sources.size(); ++i)
    if (const auto mode = sources[i].defined() ? Marks::instance().find(sources[i]) : std::nullopt)
      Marks::instance().set(targets[i], *mode);
}

}  // namespace lockstep::parallel
