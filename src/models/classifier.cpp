// SPDX-License-Identifier: Apache-2.0
#include "lockstep/models/classifier.h"

#include <c10/util/Exception.h>

#include <ostream>

#include "lockstep/base/error.h"

namespace lockstep::models {
namespace {

const torch::nn::Module& checked(const std::shared_ptr<torch::nn::Module>& network) {
  require(network != nullptr, "Classifier", "the network is empty, expected a module");
  return *network;
}

}  // namespace

Classifier::Classifier(std::shared_ptr<torch::nn::Module> network, Forward forward)
    : Module(checked(network).name()), network_(std::move(network)), forward_(forward) {
  adopt();
}

void Classifier::refuse(const torch::nn::Module& network, const Input& x) {
  constexpr const char* kKinds[] = {"a tensor", "a sparse tensor", "a field of points"};
  fail("Classifier::forward", "got ", kKinds[x.index()], ", which ", network.name(),
       " does not take: clouds are for networks of clouds, and other data for dense ones");
}

// The network is no submodule: its name would come before every other.
void Classifier::adopt() {
  for (const auto& item : network_->named_parameters(/*recurse=*/false))
    register_parameter(item.key(), item.value(), item.value().requires_grad());
  for (const auto& item : network_->named_buffers(/*recurse=*/false)) register_buffer(item.key(), item.value());
  for (const auto& item : network_->named_children()) register_module(item.key(), item.value());
  Module::train(network_->is_training());
}

std::shared_ptr<torch::nn::Module> Classifier::clone(const std::optional<c10::Device>& device) const {
  auto copy = std::make_shared<Classifier>(network_->clone(device), forward_);
  copy->train(is_training());
  return copy;
}

// As a submodule of another: that one's clone has made this one anew, and it takes the place of a clone of `other`.
void Classifier::clone_(Module& other, const std::optional<c10::Device>& device) {
  const auto copy = std::dynamic_pointer_cast<Classifier>(other.clone(device));
  require(copy != nullptr, "clone", "a submodule is a classifier where the original has ", other.name(),
          ", expected the same");
  *this = *copy;
}

std::vector<Stage> Classifier::stages() {
  if (auto* staged = dynamic_cast<Staged*>(network_.get())) return staged->stages();
  if (auto* modules = network_->as<torch::nn::SequentialImpl>()) return stages_of(*modules);
  refuse_without_stages("Classifier", network_->name());
}

void Classifier::train(bool on) {
  Module::train(on);
  network_->train(on);
}

void Classifier::pretty_print(std::ostream& stream) const {
  network_->pretty_print(stream);
}

}  // namespace lockstep::models
