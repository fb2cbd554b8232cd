// SPDX-License-Identifier: Apache-2.0
// Synthetic examples: a class has a random pattern in [0.25, 0.75), an example is the pattern of its class and uniform
// noise in [-0.5, 0.5). Nothing is kept but the patterns.
#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "data/memory_dataset.h"
#include "lockstep/base/error.h"
#include "lockstep/data/registry.h"
#include "lockstep/numerics/philox.h"

namespace lockstep::data {
namespace {

constexpr float kUnit = 0x1p-24f;  // as uniform_float: 24 random bits

/// Calls body(i, uniform number i of the key in [0, 1)).
template <class Body>
void draw(RandomKey key, int64_t count, const Body& body) {
  for (int64_t block = 0; 4 * block < count; ++block) {
    const PhiloxBlock words = key.block(static_cast<uint64_t>(block));
    for (int64_t i = 4 * block; i < std::min(4 * block + 4, count); ++i)
      body(i, static_cast<float>(words.word[i % 4] >> 8) * kUnit);
  }
}

class Synthetic : public Dataset {
 public:
  Synthetic(DatasetInfo info, RandomKey key, Subset subset)
      : Dataset(std::move(info)), noise_(key.fold(1 + static_cast<uint64_t>(subset))) {
    const int64_t numel = this->info().classes * this->info().input_numel();
    patterns_.resize(numel);
    draw(key.fold(0), numel, [&](int64_t i, float u) { patterns_[i] = 0.25f + 0.5f * u; });
  }

  Normalization normalization() const override {
    const int64_t channels = channels_of(info());
    return {std::vector<float>(channels, 0.5f), std::vector<float>(channels, 0.32f)};
  }

 protected:
  void read_inputs(std::span<const int64_t> ids, Layout layout, Affine affine, float* inputs) const override {
    const int64_t numel = info().input_numel(), channels = channels_of(info());
    std::vector<float> example(numel);
    for (const int64_t id : ids) {
      const float* pattern = patterns_.data() + class_of(id) * numel;
      draw(noise_.fold(id), numel, [&](int64_t i, float u) { example[i] = pattern[i] + (u - 0.5f); });
      write_example(example.data(), channels, numel / channels, layout, affine, inputs);
      inputs += numel;
    }
  }

  void fetch_targets(std::span<const int64_t> ids, int64_t* targets) const override {
    for (const int64_t id : ids) *targets++ = class_of(id);
  }

 private:
  int64_t class_of(int64_t id) const { return id % info().classes; }

  RandomKey noise_;
  std::vector<float> patterns_;
};

std::optional<int64_t> positive(std::string_view digits) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size() || value < 1) return std::nullopt;
  return value;
}

std::vector<std::string_view> parts_of(std::string_view whole, char separator) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0;;) {
    const size_t end = whole.find(separator, begin);
    parts.push_back(whole.substr(begin, end - begin));
    if (end == std::string_view::npos) return parts;
    begin = end + 1;
  }
}

DatasetPointer open_synthetic(std::string_view spec, Subset subset, const DatasetOptions& options) {
  DatasetInfo info{.name = "synthetic"};
  const auto parts = parts_of(spec, ':');
  bool valid = parts.size() == 3;
  const auto read = [&](std::string_view word) {
    const auto number = positive(word);
    valid = valid && number.has_value();
    return number.value_or(1);
  };
  for (const std::string_view side : parts_of(parts[0], 'x')) info.input_shape.push_back(read(side));
  if (valid) {
    info.classes = read(parts[1]);
    info.size = read(parts[2]);
  }
  require(valid, "open_dataset", "got 'synthetic:", spec,
          "', expected synthetic:SHAPE:CLASSES:COUNT such as synthetic:1x28x28:10:60000");
  return std::make_shared<Synthetic>(std::move(info), RandomKey{options.seed, 0x73796E7468ull}, subset);
}

}  // namespace

DatasetKind synthetic_kind() {
  return {.name = "synthetic",
          .usage = "synthetic:SHAPE:CLASSES:COUNT",
          .description = "synthetic:1x28x28:10:60000: the mean of a class and noise, keyed by the seed",
          .open = open_synthetic};
}

}  // namespace lockstep::data
