// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "lockstep/core/philox.h"
#include "lockstep/data/dataset.h"

namespace lockstep::data {

/// `crop:4`: pads the image with black on every side and takes a random part of the former size.
struct RandomCrop {
  int64_t padding = 4;
  bool operator==(const RandomCrop&) const = default;
};
/// `flip` or `flip:0.5`: left becomes right.
struct RandomFlip {
  double probability = 0.5;
  bool operator==(const RandomFlip&) const = default;
};
/// `shift:2`: moves the image by up to so many pixels each way; the border is repeated.
struct RandomShift {
  int64_t pixels = 2;
  bool operator==(const RandomShift&) const = default;
};
/// `erase` or `erase:0.5`: a random rectangle, 2 to 33 % of the area, becomes black, or 0 where it follows normalize.
struct RandomErase {
  double probability = 0.5;
  bool operator==(const RandomErase&) const = default;
};
/// `normalize` (the training set's own figures) or `normalize:MEAN:...:DEVIATION:...`: (value - mean) / deviation.
struct Normalize {
  Normalization figures{};
  bool operator==(const Normalize&) const = default;
};
/// The user's own: changes one example's values, [C, H, W] in float32, in place; draws from `key` alone.
struct Custom {
  std::string name;
  std::function<void(std::span<float> values, std::span<const int64_t> shape, RandomKey key)> apply;
  bool operator==(const Custom& other) const { return name == other.name; }
};

using Transform = std::variant<RandomCrop, RandomFlip, RandomShift, RandomErase, Normalize, Custom>;

/// What is done to each example, one after another. What is random is keyed by (seed, epoch, example id, place in the
/// list, normalize left out): the same for any worker, thread or placement. A value.
class Transforms {
 public:
  Transforms() = default;
  /// Throws Error for a probability outside [0, 1], a negative padding, a deviation that is not positive, or a second
  /// Normalize.
  Transforms(std::vector<Transform> list);  // NOLINT: a list is converted

  /// "crop:4,flip,normalize"; "" and "none" are the empty list. Throws Error that lists what there is.
  static Transforms parse(std::string_view text);
  /// The text form, from which parse() makes an equal value (where there is no Custom).
  std::string to_string() const;

  const std::vector<Transform>& list() const { return list_; }
  bool empty() const { return list_.empty(); }
  /// Without what is random: for evaluation.
  Transforms deterministic() const;
  /// With these figures in a Normalize that has none.
  Transforms with(const Normalization& figures) const;

  bool operator==(const Transforms&) const = default;

 private:
  std::vector<Transform> list_;
};

}  // namespace lockstep::data
