// SPDX-License-Identifier: Apache-2.0
// How values go from one part of a network to another, where parts are processes.
#pragma once

#include <ATen/core/Tensor.h>

#include <any>
#include <cstdint>
#include <map>
#include <string>
#include <typeindex>
#include <vector>

namespace lockstep {

/// What a value takes along to another process beside its features.
struct Luggage {
  std::vector<int64_t> numbers{};
  std::vector<std::string> words{};
  std::vector<at::Tensor> tensors{};
};

/// A replica's pass through a network whose parts are processes, as one of them knows it. What some values have in
/// common, a coordinate manager say, is the same object again in each process, and crosses once.
///
/// A type crosses that has these three functions beside it:
///
///     void lockstep_enter(const T& value, Crossing& pass);  // of the network's input, which every process has
///     Luggage lockstep_pack(const T& value, Crossing& pass, int64_t to);
///     T lockstep_unpack(const at::Tensor& features, const Luggage& luggage, Crossing& pass, int64_t from, const T*);
class Crossing {
 public:
  /// Of the process that is this part.
  explicit Crossing(int64_t part) : part_(part) {}

  int64_t part() const { return part_; }

  /// What a type remembers of the pass.
  template <class Notes>
  Notes& notes() {
    std::any& notes = notes_[typeid(Notes)];
    if (!notes.has_value()) notes = Notes{};
    return *std::any_cast<Notes>(&notes);
  }

 private:
  int64_t part_;
  std::map<std::type_index, std::any> notes_;
};

}  // namespace lockstep
