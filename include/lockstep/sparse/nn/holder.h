// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/pimpl.h>

#include <memory>
#include <utility>

namespace lockstep::sparse::nn {

/// A holder that makes one kind of Module. All kinds are one type of module, so that copies keep theirs.
template <class Module, auto kKind>
class HolderOfKind : public torch::nn::ModuleHolder<Module> {
 public:
  using Impl = Module;
  HolderOfKind(std::nullptr_t) : torch::nn::ModuleHolder<Module>(nullptr) {}  // NOLINT(google-explicit-constructor)
  HolderOfKind(std::shared_ptr<Module> module)                                // NOLINT(google-explicit-constructor)
      : torch::nn::ModuleHolder<Module>(std::move(module)) {}
  explicit HolderOfKind(typename Module::Options options)
      : torch::nn::ModuleHolder<Module>(std::make_shared<Module>(std::move(options), kKind)) {}
};

}  // namespace lockstep::sparse::nn
