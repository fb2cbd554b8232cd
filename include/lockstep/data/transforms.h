// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "lockstep/data/dataset.h"
#include "lockstep/numerics/philox.h"

namespace lockstep::data {

/// `crop:4`: pads the image with black on every side and takes a random part of the former size.
struct RandomCrop {
  int64_t padding = 4;
  bool operator==(const RandomCrop&) const = default;
};
/// `flip` or `flip:0.5`: left becomes right; of clouds also front becomes back, each with this probability.
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

/// `turn` or `turn:180`: turns a cloud around the vertical axis, by up to so many degrees each way.
struct RandomTurn {
  double degrees = 180;
  bool operator==(const RandomTurn&) const = default;
};
/// `scale:0.1`: makes a cloud larger or smaller by up to this part.
struct RandomScale {
  double part = 0.1;
  bool operator==(const RandomScale&) const = default;
};
/// `move:0.5`: moves a cloud by up to so many metres along each axis.
struct RandomMove {
  double metres = 0.5;
  bool operator==(const RandomMove&) const = default;
};
/// `jitter:0.005`: moves each point, with this standard deviation in metres along each axis.
struct RandomJitter {
  double metres = 0.005;
  bool operator==(const RandomJitter&) const = default;
};
/// `drop:0.1`: leaves out this part of the points.
struct RandomDrop {
  double part = 0.1;
  bool operator==(const RandomDrop&) const = default;
};
/// `chromatic` or `chromatic:0.1`: contrast and brightness of each channel, by up to this part, and a tenth of it as
/// noise of each value.
struct Chromatic {
  double amount = 0.1;
  bool operator==(const Chromatic&) const = default;
};
/// `elastic:0.4:0.05`: bends a cloud: nodes of a lattice, so many metres apart, move with this standard deviation.
struct Elastic {
  double cell = 0.4;
  double metres = 0.05;
  bool operator==(const Elastic&) const = default;
};

/// `window:4`: keeps what lies in a square of so many metres, seen from above, around one of the cloud's points.
struct RandomWindow {
  double metres = 4;
  bool operator==(const RandomWindow&) const = default;
};
/// `mix` or `mix:0.5`: adds with this probability another scene of the data set, the middle of its points over that of
/// this one's, seen from above. What stands before it is done to both, each by draws of its own; what follows to both
/// together.
struct RandomMix {
  double probability = 0.5;
  bool operator==(const RandomMix&) const = default;
};

/// The user's own: changes one example's values, [C, H, W] in float32 (of clouds the features, [points, channels]), in
/// place; draws from `key` alone.
struct Custom {
  std::string name;
  std::function<void(std::span<float> values, std::span<const int64_t> shape, RandomKey key)> apply;
  bool operator==(const Custom& other) const { return name == other.name; }
};

using Transform =
    std::variant<RandomCrop, RandomFlip, RandomShift, RandomErase, Normalize, Custom, RandomTurn, RandomScale,
                 RandomMove, RandomJitter, RandomDrop, Chromatic, Elastic, RandomWindow, RandomMix>;

/// What is done to each example, one after another: crop, flip, shift, erase and normalize to images, flip and those
/// from turn on to clouds. What is random is keyed by (seed, epoch, example id, place in the
/// list, normalize left out): the same for any worker, thread or placement. A value.
class Transforms {
 public:
  Transforms() = default;
  /// Throws Error for a probability outside [0, 1], a negative padding or length, a deviation that is not positive, or
  /// a second Normalize or RandomMix.
  Transforms(std::vector<Transform> list);  // NOLINT: a list is converted

  /// "crop:4,flip,normalize" or "turn,flip,scale:0.1"; "" and "none" are the empty list. Throws Error that lists what
  /// there is.
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
