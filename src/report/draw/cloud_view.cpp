// SPDX-License-Identifier: Apache-2.0
// Each point is a square, nearer ones before farther ones: a depth for each pixel decides.
#include "lockstep/report/cloud_view.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/pictures/image.h"

namespace lockstep::report {
namespace {

using Vector = std::array<double, 3>;

double dot(const Vector& a, const Vector& b) {
  return a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
}

/// A square part of a picture.
class Frame {
 public:
  Frame(pictures::Image& image, int left)
      : image_(image), left_(left), depths_(static_cast<size_t>(size() * size()), kFar) {}

  int size() const { return image_.height; }

  /// (u, v) in [0, 1], v downwards; `side` in pixels.
  void mark(double u, double v, double depth, double side, const pictures::Rgb& colour) {
    const auto first = [&](double at) { return static_cast<int>(std::floor(at * (size() - 1) - side / 2 + 0.5)); };
    const int length = std::max(1, static_cast<int>(std::ceil(side)));
    const int x0 = first(u), y0 = first(v);
    for (int y = std::max(0, y0); y < std::min(size(), y0 + length); ++y)
      for (int x = std::max(0, x0); x < std::min(size(), x0 + length); ++x) {
        double& before = depths_[static_cast<size_t>(y) * size() + x];
        if (depth >= before) continue;
        before = depth;
        std::ranges::copy(colour,
                          image_.pixels.begin() + 3 * (static_cast<std::ptrdiff_t>(y) * image_.width + left_ + x));
      }
  }

 private:
  static constexpr double kFar = std::numeric_limits<double>::infinity();
  pictures::Image& image_;
  int left_;
  std::vector<double> depths_;
};

struct Box {
  Vector low, high;
  Vector middle() const { return {(low[0] + high[0]) / 2, (low[1] + high[1]) / 2, (low[2] + high[2]) / 2}; }
  double width() const { return std::max({high[0] - low[0], high[1] - low[1], 1e-6}); }
  double radius() const { return std::max(1e-6, std::hypot(high[0] - low[0], high[1] - low[1], high[2] - low[2]) / 2); }
};

Box box_of(std::span<const std::array<float, 3>> points) {
  constexpr double kLarge = std::numeric_limits<double>::max();
  Box box{{kLarge, kLarge, kLarge}, {-kLarge, -kLarge, -kLarge}};
  for (const auto& point : points)
    for (size_t axis = 0; axis < 3; ++axis) {
      box.low[axis] = std::min<double>(box.low[axis], point[axis]);
      box.high[axis] = std::max<double>(box.high[axis], point[axis]);
    }
  return box;
}

void draw_from_above(const Box& box, const std::array<float, 3>& point, const pictures::Rgb& colour, double side,
                     Frame& frame) {
  const Vector middle = box.middle();
  const double scale = 0.96 / box.width();
  frame.mark(0.5 + scale * (point[0] - middle[0]), 0.5 - scale * (point[1] - middle[1]), -point[2],
             side * scale * frame.size(), colour);
}

/// From above the corner of low x and y, at twice the cloud's radius and a bit.
void draw_in_perspective(const Box& box, const std::array<float, 3>& point, const pictures::Rgb& colour, double side,
                         Frame& frame) {
  constexpr Vector ahead{0.5, 0.5, -0.70710678}, right{0.70710678, -0.70710678, 0}, down{-0.5, -0.5, -0.70710678};
  const Vector middle = box.middle();
  const Vector from{point[0] - middle[0], point[1] - middle[1], point[2] - middle[2]};
  const double depth = dot(from, ahead) + 2.4 * box.radius();
  const double scale = 1.1 / depth;
  frame.mark(0.5 + scale * dot(from, right), 0.5 + scale * dot(from, down), depth, side * scale * frame.size(), colour);
}

}  // namespace

pictures::Rgb class_colour(int64_t label) {
  static constexpr std::array<pictures::Rgb, 20> kColours{
      {{166, 206, 227}, {178, 178, 178}, {251, 206, 160}, {214, 39, 40},   {31, 119, 180},
       {255, 217, 47},  {140, 86, 75},   {44, 160, 44},   {148, 103, 189}, {227, 119, 194},
       {255, 127, 14},  {23, 190, 207},  {188, 189, 34},  {152, 223, 138}, {196, 156, 148},
       {197, 176, 213}, {247, 182, 210}, {82, 84, 163},   {99, 121, 57},   {173, 73, 74}}};
  if (label < 0) return {64, 64, 64};
  return kColours[static_cast<size_t>(label) % kColours.size()];
}

pictures::Image draw_cloud(std::span<const std::array<float, 3>> points, std::span<const pictures::Rgb> colours,
                           double side, int height, Shown shown) {
  require(points.size() == colours.size(), "draw_cloud", "there are ", points.size(), " points and ", colours.size(),
          " colours, expected as many of both");
  require(height >= 1 && side >= 0, "draw_cloud", "the height is ", height, " and a point's side ", side,
          ", expected at least 1 and 0");
  pictures::Image image{.width = 2 * height, .height = height, .channels = 3, .pixels = {}};
  image.pixels.assign(static_cast<size_t>(6) * height * height, 255);
  const Box box = box_of(points);
  const double top = shown == Shown::whole ? box.high[2] : box.low[2] + 0.75 * (box.high[2] - box.low[2]);
  Frame above(image, 0), perspective(image, height);
  for (size_t i = 0; i < points.size(); ++i) {
    if (points[i][2] > top) continue;
    draw_from_above(box, points[i], colours[i], side, above);
    draw_in_perspective(box, points[i], colours[i], side, perspective);
  }
  return image;
}

}  // namespace lockstep::report
