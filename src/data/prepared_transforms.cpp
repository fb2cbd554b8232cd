// SPDX-License-Identifier: Apache-2.0
// Crop, flip, shift and erase move pixels or paint them black. Normalising changes each value by itself, so it commutes
// with them, given what black has become: it is done while the bytes are read, at no cost, wherever it stands in the
// list. Only behind a function of the user's it keeps its place.
#include "data/prepared_transforms.h"

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <utility>

#include "data/memory_dataset.h"
#include "lockstep/base/error.h"
#include "lockstep/numerics/random.h"

namespace lockstep::data {
namespace {

constexpr uint64_t kPipelineStream = 0x7472616E73;  // "trans": nothing else draws from these numbers

int64_t shift_of(RandomKey key, uint64_t index, int64_t most) {
  return static_cast<int64_t>(below(key, index, 2 * static_cast<uint64_t>(most) + 1)) - most;
}

struct Planes {
  int64_t channels, height, width;
};

/// Pixel (y, x) becomes the former (y + dy, x + dx); outside there is black.
template <class Value>
void crop(const Planes& at, int64_t dy, int64_t dx, std::span<const Value> black, const Value* in, Value* out) {
  const int64_t begin = std::clamp<int64_t>(-dx, 0, at.width), end = std::clamp<int64_t>(at.width - dx, 0, at.width);
  for (int64_t c = 0; c < at.channels; ++c)
    for (int64_t y = 0; y < at.height; ++y, out += at.width) {
      const int64_t from = y + dy;
      if (from < 0 || from >= at.height || begin >= end) {
        std::fill_n(out, at.width, black[c]);
        continue;
      }
      std::fill_n(out, begin, black[c]);
      std::copy_n(in + (c * at.height + from) * at.width + begin + dx, end - begin, out + begin);
      std::fill(out + end, out + at.width, black[c]);
    }
}

template <class Value>
void shift(const Planes& at, int64_t dy, int64_t dx, const Value* in, Value* out) {
  for (int64_t c = 0; c < at.channels; ++c)
    for (int64_t y = 0; y < at.height; ++y) {
      const Value* row = in + (c * at.height + std::clamp<int64_t>(y + dy, 0, at.height - 1)) * at.width;
      for (int64_t x = 0; x < at.width; ++x) *out++ = row[std::clamp<int64_t>(x + dx, 0, at.width - 1)];
    }
}

/// A side of a rectangle: at least one pixel, at most all.
int64_t side(double length, int64_t most) {
  return std::clamp<int64_t>(static_cast<int64_t>(std::floor(length + 0.5)), 1, most);
}

template <class Value>
void erase(const Planes& at, RandomKey key, std::span<const Value> black, Value* image) {
  const double area = (0.02 + 0.31 * uniform(key, 1)) * static_cast<double>(at.height * at.width);
  const double flat = 0.3 + 0.7 * uniform(key, 2);  // one side over the other
  const double ratio = bernoulli(key, 3, 0.5) ? flat : 1 / flat;
  const int64_t height = side(std::sqrt(area * ratio), at.height), width = side(std::sqrt(area / ratio), at.width);
  const auto top = static_cast<int64_t>(below(key, 4, static_cast<uint64_t>(at.height - height + 1)));
  const auto left = static_cast<int64_t>(below(key, 5, static_cast<uint64_t>(at.width - width + 1)));
  for (int64_t c = 0; c < at.channels; ++c)
    for (int64_t y = top; y < top + height; ++y)
      std::fill_n(image + (c * at.height + y) * at.width + left, width, black[c]);
}

bool is_for_clouds(const Transform& step) {
  return std::visit(
      []<class Step>(const Step&) {
        return std::disjunction_v<
            std::is_same<Step, RandomTurn>, std::is_same<Step, RandomScale>, std::is_same<Step, RandomMove>,
            std::is_same<Step, RandomJitter>, std::is_same<Step, RandomDrop>, std::is_same<Step, Chromatic>,
            std::is_same<Step, Elastic>, std::is_same<Step, RandomWindow>, std::is_same<Step, RandomMix>>;
      },
      step);
}

bool moves_pixels(const Transform& step) {
  return !std::holds_alternative<Normalize>(step) && !std::holds_alternative<Custom>(step);
}

}  // namespace

PreparedTransforms::PreparedTransforms(const Transforms& transforms, const Dataset& dataset, uint64_t seed)
    : shape_(dataset.info().input_shape), channels_(channels_of(dataset.info())), seed_(seed) {
  const bool images = shape_.size() == 3;
  height_ = images ? shape_[1] : 1;
  width_ = images ? shape_[2] : dataset.info().input_numel();
  bool custom_before = false, normalized = false;
  keeps_bytes_ = dataset.holds_bytes();
  black_bytes_.resize(channels_);
  const bool asks = std::ranges::any_of(transforms.list(), [](const Transform& step) {
    const auto* normalize = std::get_if<Normalize>(&step);
    return normalize != nullptr && normalize->figures.mean.empty();
  });
  const Transforms whole = asks ? transforms.with(dataset.normalization()) : transforms;
  uint64_t place = 0;
  for (const Transform& step : whole.list()) {
    require(!is_for_clouds(step), "Transforms", "'", Transforms({step}).to_string(),
            "' is for clouds, and examples have the shape ", c10::IntArrayRef(shape_),
            ", expected crop, flip, shift, erase or normalize");
    require(!moves_pixels(step) || images, "Transforms", "'", whole.to_string(), "' moves pixels of inputs of shape ",
            c10::IntArrayRef(shape_), ", expected [C, H, W]");
    require(!moves_pixels(step) || dataset.info().target_shape.empty(), "Transforms", "'", whole.to_string(),
            "' moves pixels that have targets of their own, expected one target an example");
    const auto* normalize = std::get_if<Normalize>(&step);
    if (normalize != nullptr) {
      const auto& [mean, deviation] = normalize->figures;
      require(static_cast<int64_t>(mean.size()) == channels_, "Transforms", "normalize has figures for ", mean.size(),
              " channels, expected ", channels_);
      for (int64_t c = 0; c < channels_; ++c) {
        scale_.push_back(1.0f / deviation[c]);
        shift_.push_back(-mean[c] * scale_[c]);
      }
      normalized = true;
      normalize_while_reading_ = !custom_before;
      if (!custom_before) {
        for (Step& before : steps_) before.black = shift_;
        continue;
      }
    }
    custom_before = custom_before || std::holds_alternative<Custom>(step);
    const bool makes_black = std::holds_alternative<RandomCrop>(step) || std::holds_alternative<RandomErase>(step);
    keeps_bytes_ = keeps_bytes_ && !custom_before && !(normalized && makes_black);  // which is 0 behind normalize
    steps_.push_back({step, normalize != nullptr ? place : place++, std::vector<float>(channels_, 0.0f)});
  }
  if (!normalized) normalize_while_reading_ = false;
}

template <class Value>
void PreparedTransforms::move(const Step& step, RandomKey key, Images<Value>& images) const {
  const Planes planes{channels_, height_, width_};
  Value *image = images.image.data(), *other = images.other.data();
  std::span<const Value> black;
  if constexpr (std::is_same_v<Value, float>)
    black = step.black;
  else
    black = black_bytes_;
  if (const auto* cropping = std::get_if<RandomCrop>(&step.transform)) {
    crop(planes, shift_of(key, 0, cropping->padding), shift_of(key, 1, cropping->padding), black, image, other);
    images.image.swap(images.other);
  } else if (const auto* shifting = std::get_if<RandomShift>(&step.transform)) {
    shift(planes, shift_of(key, 0, shifting->pixels), shift_of(key, 1, shifting->pixels), image, other);
    images.image.swap(images.other);
  } else if (const auto* flipping = std::get_if<RandomFlip>(&step.transform)) {
    if (bernoulli(key, 0, flipping->probability))
      for (int64_t row = 0; row < channels_ * height_; ++row)
        std::reverse(image + row * width_, image + (row + 1) * width_);
  } else if (const auto* erasing = std::get_if<RandomErase>(&step.transform)) {
    if (bernoulli(key, 0, erasing->probability)) erase(planes, key, black, image);
  }
}

void PreparedTransforms::apply(const Step& step, RandomKey key, Images<float>& images) const {
  if (moves_pixels(step.transform)) {
    move(step, key, images);
  } else if (const auto* custom = std::get_if<Custom>(&step.transform)) {
    custom->apply(images.image, shape_, key);
  } else {
    write_example<float>(images.image.data(), channels_, height_ * width_, Layout::contiguous, normalization(),
                         images.other.data());
    images.image.swap(images.other);
  }
}

template <class Value>
void PreparedTransforms::read_into(const Dataset& dataset, int64_t epoch, std::span<const int64_t> ids, Layout layout,
                                   Affine affine, Value* inputs, int64_t* targets, Images<Value>& images) const {
  const auto read = [&](std::span<const int64_t> some, Layout into, Value* values) {
    if constexpr (std::is_same_v<Value, float>)
      dataset.read(some, into, affine, values, targets);
    else
      dataset.read(some, into, values, targets);
  };
  if (steps_.empty()) return read(ids, layout, inputs);
  const int64_t numel = dataset.info().input_numel(), target_numel = dataset.info().target_numel();
  images.image.resize(numel);
  images.other.resize(numel);
  const RandomKey of_epoch = RandomKey{seed_, kPipelineStream}.fold(static_cast<uint64_t>(epoch));
  if (shape_.size() != 3) layout = Layout::contiguous;
  for (const int64_t& id : ids) {
    read({&id, 1}, Layout::contiguous, images.image.data());
    const RandomKey key = of_epoch.fold(static_cast<uint64_t>(id));
    for (const Step& step : steps_) apply(step, key.fold(step.place), images);
    const int64_t area = numel / channels_;
    if constexpr (std::is_same_v<Value, float>)
      write_example<float>(images.image.data(), channels_, area, layout, {}, inputs);
    else
      write_example(images.image.data(), channels_, area, layout, inputs);
    inputs += numel;
    targets += target_numel;
  }
}

void PreparedTransforms::read(const Dataset& dataset, int64_t epoch, std::span<const int64_t> ids, Layout layout,
                              float* inputs, int64_t* targets, Scratch& scratch) const {
  read_into(dataset, epoch, ids, layout, normalize_while_reading_ ? normalization() : Affine{}, inputs, targets,
            scratch.floats);
}

void PreparedTransforms::read(const Dataset& dataset, int64_t epoch, std::span<const int64_t> ids, Layout layout,
                              uint8_t* inputs, int64_t* targets, Scratch& scratch) const {
  LOCKSTEP_ASSERT(keeps_bytes());
  read_into(dataset, epoch, ids, layout, {}, inputs, targets, scratch.bytes);
}

}  // namespace lockstep::data
