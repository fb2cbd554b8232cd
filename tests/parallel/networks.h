// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <string>

namespace lockstep::test {

/// A network of the contract and the data it is trained on.
class Task {
 public:
  virtual ~Task() = default;
  virtual std::shared_ptr<torch::nn::Module> network() const = 0;
  /// The mean loss of a share of the batch; a batch is the same on every replica, given its number.
  virtual torch::Tensor loss(torch::nn::Module& network, const torch::Tensor& inputs,
                             const torch::Tensor& targets) const = 0;
  virtual std::pair<torch::Tensor, torch::Tensor> batch(int64_t number) const = 0;
};

/// "lenet", "resnet18" (its batch norms are to be synchronised), "lstm" (with dropout) or "transformer" (dropout, and
/// embeddings tied to the output).
std::unique_ptr<Task> make_task(const std::string& name);

}  // namespace lockstep::test
