// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <concepts>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/numerics/device.h"

/// Cutting a batch into shares for devices, and joining results again. Both take tensors and any nesting of vectors,
/// tuples, pairs, maps and optionals of them; numbers and texts beside them go to every device as they are.
///
/// A type of your own takes part with two functions in its own namespace (found by its arguments; `lockstep_gather`
/// only where it is gathered):
///
///     std::vector<Cloud> lockstep_scatter(const Cloud& batch, const std::vector<Device>& devices, int64_t dim);
///     Cloud lockstep_gather(const std::vector<Cloud>& parts, const Device& device, int64_t dim);
///
/// and, where its operations look at the current device, `at::Device lockstep_device(const Cloud& share)`.
namespace lockstep::parallel {

using Devices = std::vector<Device>;

/// Shares of a tensor along `dim`: contiguous runs in order, sizes differ by at most one, the first ones are larger,
/// and empty where there are fewer examples than devices. Views where the device is the tensor's own, else copies. One
/// without dimensions, or an undefined one, goes to every device. Differentiable.
std::vector<at::Tensor> scatter_tensor(const at::Tensor& x, const Devices& devices, int64_t dim = 0);

/// The tensors on one device, one after another along `dim`; those without dimensions (losses) make a vector.
/// Differentiable. Throws Error where some are undefined and others not.
at::Tensor gather_tensors(const std::vector<at::Tensor>& parts, const Device& device, int64_t dim = 0);

namespace detail {

template <class T>
concept Scatterable = requires(const T& x, const Devices& devices, int64_t dim) {
  { lockstep_scatter(x, devices, dim) } -> std::same_as<std::vector<T>>;
};
template <class T>
concept Gatherable = requires(const std::vector<T>& parts, const Device& device, int64_t dim) {
  { lockstep_gather(parts, device, dim) } -> std::same_as<T>;
};
template <class T>
concept Plain = std::is_arithmetic_v<T> || std::is_enum_v<T> || std::same_as<T, std::string>;

/// How one type is cut and joined.
template <class T>
struct Nested {
  static std::vector<T> scatter(const T& x, const Devices& devices, int64_t dim) {
    static_assert(Scatterable<T> || Plain<T>, "scatter: this type has no lockstep_scatter (see scatter.h)");
    if constexpr (Scatterable<T>)
      return lockstep_scatter(x, devices, dim);
    else
      return std::vector<T>(devices.size(), x);
  }
  static T gather(const std::vector<T>& parts, const Device& device, int64_t dim) {
    static_assert(Gatherable<T> || Plain<T>, "gather: this type has no lockstep_gather (see scatter.h)");
    if constexpr (Gatherable<T>) {
      return lockstep_gather(parts, device, dim);
    } else {
      for (const T& part : parts) require(part == parts[0], "gather", "values differ: ", part, " and ", parts[0]);
      return parts[0];
    }
  }
};

template <>
struct Nested<at::Tensor> {
  static std::vector<at::Tensor> scatter(const at::Tensor& x, const Devices& devices, int64_t dim) {
    return scatter_tensor(x, devices, dim);
  }
  static at::Tensor gather(const std::vector<at::Tensor>& parts, const Device& device, int64_t dim) {
    return gather_tensors(parts, device, dim);
  }
};

/// Member `get` of every part, joined.
template <class Part, class Get>
auto gather_member(const std::vector<Part>& parts, const Device& device, int64_t dim, const Get& get) {
  std::vector<std::remove_cvref_t<decltype(get(parts[0]))>> members;
  for (const Part& part : parts) members.push_back(get(part));
  return Nested<typename decltype(members)::value_type>::gather(members, device, dim);
}

template <class T>
struct Nested<std::vector<T>> {
  static std::vector<std::vector<T>> scatter(const std::vector<T>& x, const Devices& devices, int64_t dim) {
    std::vector<std::vector<T>> shares(devices.size());
    for (const T& element : x) {
      auto parts = Nested<T>::scatter(element, devices, dim);
      for (size_t r = 0; r < shares.size(); ++r) shares[r].push_back(std::move(parts[r]));
    }
    return shares;
  }
  static std::vector<T> gather(const std::vector<std::vector<T>>& parts, const Device& device, int64_t dim) {
    for (const auto& part : parts)
      require(part.size() == parts[0].size(), "gather", "vectors hold ", part.size(), " and ", parts[0].size(),
              " elements, expected the same of every replica");
    std::vector<T> whole;
    for (size_t i = 0; i < parts[0].size(); ++i)
      whole.push_back(gather_member(parts, device, dim, [i](const auto& part) -> const T& { return part[i]; }));
    return whole;
  }
};

template <class T>
struct Nested<std::optional<T>> {
  static std::vector<std::optional<T>> scatter(const std::optional<T>& x, const Devices& devices, int64_t dim) {
    std::vector<std::optional<T>> shares(devices.size());
    if (!x) return shares;
    auto parts = Nested<T>::scatter(*x, devices, dim);
    for (size_t r = 0; r < shares.size(); ++r) shares[r] = std::move(parts[r]);
    return shares;
  }
  static std::optional<T> gather(const std::vector<std::optional<T>>& parts, const Device& device, int64_t dim) {
    for (const auto& part : parts)
      require(part.has_value() == parts[0].has_value(), "gather", "some replicas have a value and others none");
    if (!parts[0]) return std::nullopt;
    return gather_member(parts, device, dim, [](const auto& part) -> const T& { return *part; });
  }
};

template <class Map>
struct NestedMap {
  static std::vector<Map> scatter(const Map& x, const Devices& devices, int64_t dim) {
    std::vector<Map> shares(devices.size());
    for (const auto& [key, value] : x) {
      auto parts = Nested<typename Map::mapped_type>::scatter(value, devices, dim);
      for (size_t r = 0; r < shares.size(); ++r) shares[r].emplace(key, std::move(parts[r]));
    }
    return shares;
  }
  static Map gather(const std::vector<Map>& parts, const Device& device, int64_t dim) {
    Map whole;
    for (const Map& part : parts)
      require(part.size() == parts[0].size(), "gather", "maps hold ", part.size(), " and ", parts[0].size(),
              " keys, expected the same of every replica");
    for (const auto& entry : parts[0]) {
      const auto& key = entry.first;
      whole.emplace(key, gather_member(parts, device, dim, [&key](const Map& part) -> const typename Map::mapped_type& {
                      const auto found = part.find(key);
                      require(found != part.end(), "gather", "maps hold different keys, expected the same");
                      return found->second;
                    }));
    }
    return whole;
  }
};
template <class Key, class T, class... Rest>
struct Nested<std::map<Key, T, Rest...>> : NestedMap<std::map<Key, T, Rest...>> {};
template <class Key, class T, class... Rest>
struct Nested<std::unordered_map<Key, T, Rest...>> : NestedMap<std::unordered_map<Key, T, Rest...>> {};

/// Tuples and pairs.
template <class Tuple, class Indices>
struct NestedTuple;
template <class Tuple, size_t... I>
struct NestedTuple<Tuple, std::index_sequence<I...>> {
  static std::vector<Tuple> scatter(const Tuple& x, const Devices& devices, int64_t dim) {
    auto members = std::make_tuple(Nested<std::tuple_element_t<I, Tuple>>::scatter(std::get<I>(x), devices, dim)...);
    std::vector<Tuple> shares;
    for (size_t r = 0; r < devices.size(); ++r) shares.emplace_back(std::move(std::get<I>(members)[r])...);
    return shares;
  }
  static Tuple gather(const std::vector<Tuple>& parts, const Device& device, int64_t dim) {
    return Tuple(gather_member(parts, device, dim, [](const Tuple& part) -> const std::tuple_element_t<I, Tuple>& {
      return std::get<I>(part);
    })...);
  }
};
template <class... Members>
struct Nested<std::tuple<Members...>> : NestedTuple<std::tuple<Members...>, std::index_sequence_for<Members...>> {};
template <class First, class Second>
struct Nested<std::pair<First, Second>> : NestedTuple<std::pair<First, Second>, std::index_sequence<0, 1>> {};

}  // namespace detail

/// The share of each device. Throws Error where there are no devices.
template <class T>
std::vector<T> scatter(const T& x, const Devices& devices, int64_t dim = 0) {
  require(!devices.empty(), "scatter", "there are no devices, expected at least one");
  return detail::Nested<T>::scatter(x, devices, dim);
}

/// The inverse: every replica's output, joined on one device. Throws Error where there are no outputs, or they differ
/// in structure.
template <class T>
T gather(const std::vector<T>& outputs, const Device& device, int64_t dim = 0) {
  require(!outputs.empty(), "gather", "there are no outputs, expected at least one");
  return detail::Nested<T>::gather(outputs, device, dim);
}

/// Examples and labels cut alike: {shares of x, shares of y}. Throws Error where tensors differ in length.
template <class X, class Y>
std::pair<std::vector<X>, std::vector<Y>> split_batch(const X& x, const Y& y, const Devices& devices) {
  if constexpr (std::same_as<X, at::Tensor> && std::same_as<Y, at::Tensor>)
    require(x.dim() > 0 && y.dim() > 0 && x.size(0) == y.size(0), "split_batch", "x is ", x.sizes(), " and y ",
            y.sizes(), ", expected as many labels as examples");
  return {scatter(x, devices), scatter(y, devices)};
}

}  // namespace lockstep::parallel
