// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <any>
#include <concepts>
#include <string_view>
#include <typeinfo>

#include "lockstep/context/detail/crossing.h"

namespace lockstep {

/// What can go from one stage to the next: a tensor, or a value that has features, as sparse tensors and fields do.
template <class T>
concept Carried = std::same_as<T, at::Tensor> || requires(const T& value, at::Tensor features) {
  { value.features() } -> std::convertible_to<const at::Tensor&>;
  { value.with_features(features) } -> std::convertible_to<T>;
};

/// What can go to another process too.
template <class T>
concept Crosses = Carried<T> && requires(const T& value, Crossing& pass) {
  lockstep_enter(value, pass);
  { lockstep_pack(value, pass, int64_t{}) } -> std::same_as<Luggage>;
  { lockstep_unpack(at::Tensor(), Luggage(), pass, int64_t{}, &value) } -> std::same_as<T>;
};

/// What is done with values of a type of which only their bundle knows.
struct CarriedType {
  const char* name;
  const at::Tensor& (*tensor)(const std::any&) = nullptr;
  void (*replace)(std::any&, const at::Tensor&) = nullptr;
  // As in crossing.h. Null where values don't go to other processes.
  void (*enter)(const std::any&, Crossing&) = nullptr;
  Luggage (*pack)(const std::any&, Crossing&, int64_t to) = nullptr;
  std::any (*unpack)(const at::Tensor&, const Luggage&, Crossing&, int64_t from) = nullptr;
};

/// Another process finds it by its name. Returns what it was given.
CarriedType register_carried_type(const CarriedType& type);
/// Throws Error where no stage of this program carries such a type.
const CarriedType& find_carried_type(std::string_view name);

template <Carried T>
CarriedType describe_carried_type() {
  CarriedType type{.name = typeid(T).name()};
  if constexpr (std::same_as<T, at::Tensor>) {
    type.tensor = [](const std::any& value) -> const at::Tensor& { return *std::any_cast<T>(&value); };
    type.replace = [](std::any& value, const at::Tensor& tensor) { value = tensor; };
    type.enter = [](const std::any&, Crossing&) {};
    type.pack = [](const std::any&, Crossing&, int64_t) { return Luggage(); };
    type.unpack = [](const at::Tensor& tensor, const Luggage&, Crossing&, int64_t) { return std::any(tensor); };
  } else {
    type.tensor = [](const std::any& value) -> const at::Tensor& { return std::any_cast<T>(&value)->features(); };
    type.replace = [](std::any& value, const at::Tensor& tensor) {
      value = T(std::any_cast<T>(&value)->with_features(tensor));
    };
  }
  if constexpr (Crosses<T>) {
    type.enter = [](const std::any& value, Crossing& pass) { lockstep_enter(*std::any_cast<T>(&value), pass); };
    type.pack = [](const std::any& value, Crossing& pass, int64_t to) {
      return lockstep_pack(*std::any_cast<T>(&value), pass, to);
    };
    type.unpack = [](const at::Tensor& features, const Luggage& luggage, Crossing& pass, int64_t from) {
      return std::any(lockstep_unpack(features, luggage, pass, from, static_cast<const T*>(nullptr)));
    };
  }
  return type;
}

/// Of each type that some stage of the program puts into a bundle, before main() begins. Without memory for a few words
/// then, a program ends.
template <Carried T>
// NOLINTNEXTLINE(bugprone-throwing-static-initialization)
inline const CarriedType carried_type = register_carried_type(describe_carried_type<T>());

}  // namespace lockstep
