// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "lockstep/data/dataset.h"
#include "lockstep/data/transforms.h"

namespace lockstep::data {

/// Transforms made ready for the inputs of one data set. Threads may use it at once, each with a scratch of its own.
class PreparedTransforms {
 public:
  template <class Value>
  struct Images {
    std::vector<Value> image, other;
  };
  struct Scratch {
    Images<float> floats;
    Images<uint8_t> bytes;
  };

  /// Throws Error where the transforms don't fit the inputs: pixels to move that are no [C, H, W], figures for another
  /// number of channels, pixels that have targets of their own.
  PreparedTransforms(const Transforms& transforms, const Dataset& dataset, uint64_t seed);

  /// Reads examples and transforms them: inputs and targets as Dataset::read writes them.
  void read(const Dataset& dataset, int64_t epoch, std::span<const int64_t> ids, Layout layout, float* inputs,
            int64_t* targets, Scratch& scratch) const;
  /// The same without normalising, of bytes: where keeps_bytes(). What is black is 0 then.
  void read(const Dataset& dataset, int64_t epoch, std::span<const int64_t> ids, Layout layout, uint8_t* inputs,
            int64_t* targets, Scratch& scratch) const;
  /// Whether inputs are bytes, and all that is done to them before they are normalised moves pixels or makes them
  /// black.
  bool keeps_bytes() const { return keeps_bytes_; }
  /// Of normalize, a value a channel; empty without it.
  Affine normalization() const { return {scale_, shift_}; }

 private:
  struct Step {
    Transform transform;
    uint64_t place;            // in the user's list without normalize: part of the key
    std::vector<float> black;  // what black is here, one value a channel
  };

  template <class Value>
  void read_into(const Dataset& dataset, int64_t epoch, std::span<const int64_t> ids, Layout layout, Affine affine,
                 Value* inputs, int64_t* targets, Images<Value>& images) const;
  /// What moves pixels.
  template <class Value>
  void move(const Step& step, RandomKey key, Images<Value>& images) const;
  void apply(const Step& step, RandomKey key, Images<float>& images) const;
  void apply(const Step& step, RandomKey key, Images<uint8_t>& images) const { move(step, key, images); }

  std::vector<int64_t> shape_;
  int64_t channels_, height_, width_;
  uint64_t seed_;
  std::vector<float> scale_, shift_;  // of normalize, or empty
  bool normalize_while_reading_ = true, keeps_bytes_ = true;
  std::vector<uint8_t> black_bytes_;  // one a channel
  std::vector<Step> steps_;           // what is left to do for each example
};

}  // namespace lockstep::data
