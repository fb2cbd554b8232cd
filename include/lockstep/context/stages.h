// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <any>
#include <concepts>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/context/detail/carried_type.h"

/// Where a network may be cut, so that devices can divide it (TeamOptions::split): it is a fold over stages.
///
///     struct MyNetImpl : torch::nn::Cloneable<MyNetImpl>, lockstep::Staged {
///       std::vector<Stage> stages() override {
///         return {{"body", [this](const at::Tensor& x) { return body->forward(x); }},
///                 {"head", [this](const at::Tensor& x) { return head->forward(x); }}};
///       }
///       at::Tensor forward(const at::Tensor& x) { return fold<at::Tensor>(stages(), x); }
///       ...
///     };
///
/// What a later stage needs besides, a skip connection, travels in the bundle under a name of its own:
///
///     {"down", [this](Bundle& b) { b.put("skip", b.get<at::Tensor>()); b.put(down(b.get<at::Tensor>())); }},
///     {"up",   [this](Bundle& b) { b.put(at::cat({up(b.get<at::Tensor>()), b.take<at::Tensor>("skip")}, 1)); }},
///
/// A torch::nn::Sequential is cut between its modules without any of this.
namespace lockstep {

/// The values that go from one stage to the next, by name. The main one is "x".
class Bundle {
 public:
  Bundle() = default;

  template <Carried T>
  void put(T value) {
    put(kMain, std::move(value));
  }
  /// Takes the place of what has this name.
  template <Carried T>
  void put(const std::string& name, T value) {
    place(name) = {name, std::move(value), &carried_type<T>};
  }

  /// Throws Error where there is no such value, or it has another type.
  template <Carried T>
  const T& get(const std::string& name = kMain) const {
    const T* value = std::any_cast<T>(&find(name).value);
    if (value == nullptr) refuse_type(name);
    return *value;
  }
  /// The same; the value is gone from the bundle.
  template <Carried T>
  T take(const std::string& name = kMain) {
    T value = get<T>(name);
    drop(name);
    return value;
  }

  /// In the order in which the values came.
  std::vector<std::string> names() const;
  /// What autograd sees of each value, in the order in which the names came: the tensor, or the features.
  std::vector<at::Tensor> tensors() const;
  /// Puts other tensors in their places, as tensors() gave them.
  void replace_tensors(const std::vector<at::Tensor>& tensors);

  /// A value, and what to do with it where it is to go to another process.
  const std::any& value(const std::string& name) const { return find(name).value; }
  const CarriedType& type(const std::string& name) const { return *find(name).type; }
  void put(const std::string& name, std::any value, const CarriedType& type) {
    place(name) = {name, std::move(value), &type};
  }

 private:
  static constexpr const char* kMain = "x";

  struct Entry {
    std::string name;
    std::any value;
    const CarriedType* type;
  };

  Entry& place(const std::string& name);
  const Entry& find(const std::string& name) const;
  void drop(const std::string& name);
  [[noreturn]] static void refuse_type(const std::string& name);

  std::vector<Entry> entries_;
};

/// A piece of a network that is never cut.
struct Stage {
  std::string name;
  std::function<void(Bundle&)> run;

  /// Of a function of the whole bundle, or of a tensor, which takes the main value and gives the next one.
  template <class Function>
  requires std::invocable<Function&, Bundle&> || std::invocable<Function&, const at::Tensor&> Stage(std::string stage,
                                                                                                    Function function)
      : name(std::move(stage)) {
    if constexpr (std::invocable<Function&, Bundle&>)
      run = std::move(function);
    else
      run = on_main<at::Tensor>(std::move(function));
  }

  /// Of a function of one value of another kind: Stage::of<SparseTensor>("conv1", [this](const SparseTensor& x) {...}).
  template <Carried T, std::invocable<const T&> Function>
  static Stage of(std::string name, Function function) {
    return {std::move(name), on_main<T>(std::move(function))};
  }

 private:
  template <class T, class Function>
  static std::function<void(Bundle&)> on_main(Function function) {
    return [function = std::move(function)](Bundle& bundle) { bundle.put(function(bundle.get<T>())); };
  }
};

/// A network that can be cut. Its forward() is fold() over its stages.
class Staged {
 public:
  Staged() = default;
  virtual ~Staged() = default;

  /// In order. They may refer to the network, which outlives them.
  virtual std::vector<Stage> stages() = 0;

 protected:
  Staged(const Staged&) = default;
  Staged& operator=(const Staged&) = default;
};

/// Runs the stages one after another on the bundle. Where a team divides the network, each runs on its part's device.
void run_stages(const std::vector<Stage>& stages, Bundle& bundle);

/// The main value that the stages make of `x`.
template <Carried Result, Carried Input>
Result fold(const std::vector<Stage>& stages, const Input& x) {
  Bundle bundle;
  bundle.put(x);
  run_stages(stages, bundle);
  return bundle.take<Result>();
}

/// Throws the Error of a network that can't be cut. It shows what to write.
[[noreturn]] void refuse_without_stages(const char* operation, const std::string& network);

}  // namespace lockstep
