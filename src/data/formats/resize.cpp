// SPDX-License-Identifier: Apache-2.0
#include "data/formats/resize.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::data {
namespace {

constexpr int kWeightBits = 15;

/// One pixel of a scaled row: the sum over `count` old ones from `first` on, with weights that add up to 2^15.
struct Tap {
  int64_t first;
  std::vector<int32_t> weights;
};

/// The new pixels [begin, begin + count) of a row of `from` pixels scaled to `to`.
std::vector<Tap> make_taps(int64_t from, int64_t to, int64_t begin, int64_t count) {
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  const double radius = std::max(scale, 1.0);
  std::vector<Tap> taps;
  for (int64_t i = begin; i < begin + count; ++i) {
    const double center = (static_cast<double>(i) + 0.5) * scale - 0.5;
    const int64_t first = std::max<int64_t>(0, static_cast<int64_t>(std::ceil(center - radius)));
    const int64_t last = std::min<int64_t>(from - 1, static_cast<int64_t>(std::floor(center + radius)));
    std::vector<double> weights;
    double total = 0;
    for (int64_t x = first; x <= last; ++x) {
      weights.push_back(std::max(0.0, 1.0 - std::abs(static_cast<double>(x) - center) / radius));
      total += weights.back();
    }
    Tap tap{first, {}};
    int32_t left = 1 << kWeightBits;
    for (const double weight : weights) {
      tap.weights.push_back(static_cast<int32_t>(std::floor(weight / total * (1 << kWeightBits) + 0.5)));
      left -= tap.weights.back();
    }
    *std::ranges::max_element(tap.weights) += left;  // what rounding left over
    taps.push_back(std::move(tap));
  }
  return taps;
}

uint8_t rounded(int64_t sum) {
  return static_cast<uint8_t>(std::clamp<int64_t>((sum + (1 << (kWeightBits - 1))) >> kWeightBits, 0, 255));
}

}  // namespace

void resize_and_crop(const pictures::Image& image, int64_t size, uint8_t* out) {
  require(size > 0 && image.height > 0 && image.width > 0, "resize_and_crop", "got an image of ", image.height, " x ",
          image.width, " and the size ", size, ", expected positive sizes");
  const int64_t shorter = std::min(image.height, image.width), row = image.width;
  const auto scaled = [&](int64_t side) { return std::max(size, (side * size + shorter / 2) / shorter); };
  const int64_t height = scaled(image.height), width = scaled(image.width);
  const auto columns = make_taps(image.width, width, (width - size) / 2, size);
  const auto rows = make_taps(image.height, height, (height - size) / 2, size);
  const int64_t top = rows.front().first, bottom = rows.back().first + static_cast<int64_t>(rows.back().weights.size());
  std::vector<uint8_t> narrow((bottom - top) * size * 3);  // [rows that are needed, size, 3]
  for (int64_t y = top; y < bottom; ++y)
    for (int64_t x = 0; x < size; ++x)
      for (int64_t c = 0; c < 3; ++c) {
        const uint8_t* in = &image.pixels[(y * row + columns[x].first) * 3 + c];
        int64_t sum = 0;
        for (size_t k = 0; k < columns[x].weights.size(); ++k) sum += int64_t{in[k * 3]} * columns[x].weights[k];
        narrow[((y - top) * size + x) * 3 + c] = rounded(sum);
      }
  for (int64_t y = 0; y < size; ++y)
    for (int64_t x = 0; x < size; ++x)
      for (int64_t c = 0; c < 3; ++c) {
        const uint8_t* in = &narrow[((rows[y].first - top) * size + x) * 3 + c];
        int64_t sum = 0;
        for (size_t k = 0; k < rows[y].weights.size(); ++k) sum += int64_t{in[k * size * 3]} * rows[y].weights[k];
        out[(c * size + y) * size + x] = rounded(sum);
      }
}

}  // namespace lockstep::data
