// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <concepts>
#include <iosfwd>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/context/sequential_stages.h"
#include "lockstep/context/stages.h"
#include "lockstep/sparse/tensor_field.h"

namespace lockstep::models {

/// What networks take: a batch [N, ...], the voxels of clouds, or their points.
using Input = std::variant<at::Tensor, sparse::SparseTensor, sparse::TensorField>;

/// A network that gives logits for an input of this kind: a tensor [N, classes], or a sparse one or a field whose
/// features they are, a row for each of the input's.
template <class Network, class Kind>
concept Takes = requires(Network& network, const Kind& x) {
  network.forward(x);
};

/// Any network from a batch [N, ...] to logits [N, classes], as one type: `me.share(classifier)` and a training loop
/// need not know what it is.
///
///     auto net = Classifier::of(std::make_shared<MyNetImpl>(10));    // a shared pointer or a TORCH_MODULE holder
///     at::Tensor logits = net->forward(x);
///
/// Networks of clouds take sparse tensors or fields, and give logits for each point or each cloud.
///
/// The network in it keeps its own names: the classifier's parameters, buffers and submodules are the network's own
/// tensors and modules, not copies and without a prefix ("conv1.weight"). So to(), load and share() act on both. It
/// can be cloned where the network can (torch::nn::Cloneable). The network must have registered everything before.
class Classifier : public torch::nn::Module, public Staged {
 public:
  using Forward = at::Tensor (*)(torch::nn::Module&, const Input&);

  /// The network has a forward that takes one kind of Input or several. Throws Error where the pointer is empty.
  template <class Network>
  static std::shared_ptr<Classifier> of(
      const std::shared_ptr<Network>& network) requires std::derived_from<Network, torch::nn::Module> {
    if constexpr (std::same_as<Network, Classifier>)
      return network;
    else
      return std::make_shared<Classifier>(network, [](torch::nn::Module& module, const Input& x) -> at::Tensor {
        return std::visit([&](const auto& kind) { return run(static_cast<Network&>(module), kind); }, x);
      });
  }
  template <class Holder>
  static std::shared_ptr<Classifier> of(
      const Holder& network) requires std::derived_from<typename Holder::ContainedType, torch::nn::Module> {
    return of(network.ptr());
  }

  /// `forward` is called with the network or a clone of it. of() is the convenient way.
  Classifier(std::shared_ptr<torch::nn::Module> network, Forward forward);

  /// x [N, ...] on the network's device -> logits [N, classes]; N may be 0. Of sparse tensors and fields see Takes.
  /// Throws Error where the network takes no input of this kind.
  at::Tensor forward(const Input& x) { return forward_(*network_, x); }

  /// The network's own. Throws Error, which shows what to write, where it has none.
  std::vector<Stage> stages() override;

  /// The network in it: `classifier->network()->as<MyNetImpl>()`.
  const std::shared_ptr<torch::nn::Module>& network() const { return network_; }

  std::shared_ptr<torch::nn::Module> clone(const std::optional<c10::Device>& device = std::nullopt) const override;
  void train(bool on = true) override;
  void pretty_print(std::ostream& stream) const override;

 private:
  static at::Tensor features_of(const at::Tensor& logits) { return logits; }
  template <class Points>
  static at::Tensor features_of(const Points& logits) {
    return logits.features();
  }
  template <class Network, class Kind>
  static at::Tensor run(Network& network, const Kind& x) {
    if constexpr (std::same_as<Network, torch::nn::SequentialImpl> && std::same_as<Kind, at::Tensor>)
      return fold<at::Tensor>(stages_of(network), x);
    else if constexpr (Takes<Network, Kind>)
      return features_of(network.forward(x));
    else
      refuse(network, x);
  }
  [[noreturn]] static void refuse(const torch::nn::Module& network, const Input& x);

  void clone_(torch::nn::Module& other, const std::optional<c10::Device>& device) override;
  void adopt();

  std::shared_ptr<torch::nn::Module> network_;
  Forward forward_;
};

}  // namespace lockstep::models
