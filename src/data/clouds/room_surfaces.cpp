// SPDX-License-Identifier: Apache-2.0
#include "data/clouds/room_surfaces.h"

#include <cmath>
#include <numbers>

namespace lockstep::data {
namespace {

Point minus(const Point& a, const Point& b) {
  return {a[0] - b[0], a[1] - b[1], a[2] - b[2]};
}

}  // namespace

double Surface::area() const {
  const double x = a[1] * b[2] - a[2] * b[1], y = a[2] * b[0] - a[0] * b[2], z = a[0] * b[1] - a[1] * b[0];
  return std::sqrt(x * x + y * y + z * z);
}

Point Pose::at(double right, double ahead, double height) const {
  const double cosine = std::cos(angle), sine = std::sin(angle);
  return {static_cast<float>(x + cosine * right - sine * ahead), static_cast<float>(y + sine * right + cosine * ahead),
          static_cast<float>(height)};
}

RoomBuilder::RoomBuilder(double width, double depth, double height, Draws& draws) : height_(height), draws_(draws) {
  shell(width, depth);
}

// Woods, paints and whites are those of several classes: a colour alone does not tell which.
Point RoomBuilder::wood() {
  const double light = draws_.between(0.35, 0.75);
  return {static_cast<float>(light), static_cast<float>(light * draws_.between(0.7, 0.85)),
          static_cast<float>(light * draws_.between(0.4, 0.7))};
}

Point RoomBuilder::paint() {
  if (draws_.coin(0.5)) {
    const auto white = static_cast<float>(draws_.between(0.7, 0.95));
    return {white, white, white};
  }
  Point colour;
  for (float& value : colour) value = static_cast<float>(draws_.between(0.2, 0.9));
  return colour;
}

void RoomBuilder::shell(double width, double depth) {
  const auto w = static_cast<float>(width), d = static_cast<float>(depth), h = static_cast<float>(height_);
  const Point ground = draws_.coin(0.6) ? wood() : paint(), walls = paint(), above = paint();
  surfaces_.push_back({{0, 0, 0}, {w, 0, 0}, {0, d, 0}, RoomClass::floor, ground});
  surfaces_.push_back({{0, 0, h}, {w, 0, 0}, {0, d, 0}, RoomClass::ceiling, above});
  surfaces_.push_back({{0, 0, 0}, {w, 0, 0}, {0, 0, h}, RoomClass::wall, walls});
  surfaces_.push_back({{0, d, 0}, {w, 0, 0}, {0, 0, h}, RoomClass::wall, walls});
  surfaces_.push_back({{0, 0, 0}, {0, d, 0}, {0, 0, h}, RoomClass::wall, walls});
  surfaces_.push_back({{w, 0, 0}, {0, d, 0}, {0, 0, h}, RoomClass::wall, walls});
}

void RoomBuilder::block(const Pose& pose, Extent right, Extent ahead, Extent up, RoomClass label, const Point& colour) {
  const auto corner = [&](bool r, bool a, bool u) {
    return pose.at(r ? right.high : right.low, a ? ahead.high : ahead.low, u ? up.high : up.low);
  };
  const Point low = corner(false, false, false), high = corner(true, true, true);
  const Point x = minus(corner(true, false, false), low), y = minus(corner(false, true, false), low),
              z = minus(corner(false, false, true), low);
  const auto back = [](const Point& edge) { return Point{-edge[0], -edge[1], -edge[2]}; };
  for (const auto& [a, b] : {std::pair(x, y), {x, z}, {y, z}}) {
    surfaces_.push_back({low, a, b, label, colour});
    surfaces_.push_back({high, back(a), back(b), label, colour});
  }
}

void RoomBuilder::pillar(const Pose& pose, double radius, Extent up, RoomClass label, const Point& colour) {
  constexpr int kSides = 8;
  const auto corner = [&](int side, double height) {
    const double angle = 2 * std::numbers::pi * side / kSides;
    return pose.at(radius * std::cos(angle), radius * std::sin(angle), height);
  };
  for (int side = 0; side < kSides; ++side) {
    const Point low = corner(side, up.low);
    surfaces_.push_back({low, minus(corner(side + 1, up.low), low), minus(corner(side, up.high), low), label, colour});
  }
  block(pose, {-0.7 * radius, 0.7 * radius}, {-0.7 * radius, 0.7 * radius}, {up.high - 0.01, up.high}, label, colour);
}

void RoomBuilder::table(const Pose& pose) {
  const double half = draws_.between(0.5, 0.9), deep = draws_.between(0.3, 0.45), top = draws_.between(0.68, 0.78);
  const Point colour = draws_.coin(0.7) ? wood() : paint();
  block(pose, {-half, half}, {-deep, deep}, {top - 0.04, top}, RoomClass::table, colour);
  for (const double r : {-half + 0.03, half - 0.09})
    for (const double a : {-deep + 0.03, deep - 0.09})
      block(pose, {r, r + 0.06}, {a, a + 0.06}, {0, top - 0.04}, RoomClass::table, colour);
  if (draws_.coin(0.4)) box({pose.x, pose.y, draws_.between(0, 3)}, top);
}

void RoomBuilder::chair(const Pose& pose) {
  const double half = draws_.between(0.2, 0.26), seat = draws_.between(0.42, 0.5), back = draws_.between(0.35, 0.5);
  const Point colour = draws_.coin(0.6) ? wood() : paint();
  block(pose, {-half, half}, {-half, half}, {seat - 0.04, seat}, RoomClass::chair, colour);
  block(pose, {-half, half}, {-half, -half + 0.04}, {seat, seat + back}, RoomClass::chair, colour);
  for (const double r : {-half, half - 0.04})
    for (const double a : {-half, half - 0.04})
      block(pose, {r, r + 0.04}, {a, a + 0.04}, {0, seat - 0.04}, RoomClass::chair, colour);
}

void RoomBuilder::shelf(const Pose& pose) {
  const double half = draws_.between(0.35, 0.6), deep = draws_.between(0.12, 0.2), top = draws_.between(1.2, 2.1);
  const Point colour = draws_.coin(0.6) ? wood() : paint();
  for (const double r : {-half, half - 0.03})
    block(pose, {r, r + 0.03}, {-deep, deep}, {0, top}, RoomClass::shelf, colour);
  block(pose, {-half, half}, {-deep, -deep + 0.02}, {0, top}, RoomClass::shelf, colour);
  const int64_t boards = draws_.integer(3, 6);
  for (int64_t board = 0; board <= boards; ++board) {
    const double height = top * static_cast<double>(board) / static_cast<double>(boards);
    block(pose, {-half, half}, {-deep, deep}, {std::max(0.0, height - 0.03), std::max(0.03, height)}, RoomClass::shelf,
          colour);
  }
}

void RoomBuilder::box(const Pose& pose, double floor) {
  const double half = draws_.between(0.12, 0.35), deep = draws_.between(0.12, 0.35), tall = draws_.between(0.15, 0.6);
  block(pose, {-half, half}, {-deep, deep}, {floor, floor + tall}, RoomClass::box, draws_.coin(0.5) ? wood() : paint());
}

void RoomBuilder::floor_lamp(const Pose& pose) {
  const double top = draws_.between(1.3, 1.7), shade = draws_.between(0.15, 0.25);
  const Point colour = paint();
  pillar(pose, 0.15, {0, 0.03}, RoomClass::lamp, colour);
  pillar(pose, 0.03, {0.03, top - 0.25}, RoomClass::lamp, colour);
  pillar(pose, shade, {top - 0.25, top}, RoomClass::lamp, paint());
}

void RoomBuilder::ceiling_lamp(const Pose& pose) {
  const double drop = draws_.between(0.3, 0.8), shade = draws_.between(0.15, 0.3);
  pillar(pose, 0.02, {height_ - drop, height_}, RoomClass::lamp, paint());
  pillar(pose, shade, {height_ - drop - 0.2, height_ - drop}, RoomClass::lamp, paint());
}

}  // namespace lockstep::data
