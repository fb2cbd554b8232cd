// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "report/draw/palette.h"

/// What a figure is drawn on: an SVG text, or pixels. Coordinates are a page's pixels, y downwards.
namespace lockstep::report {

struct Point {
  double x, y;
};

struct Rect {
  double left, top, right, bottom;
  double width() const { return right - left; }
  double height() const { return bottom - top; }
};

struct Stroke {
  Ink ink;
  double width = 1;
  bool dashed = false;
  double opacity = 1;
};

enum class Anchor { start, middle, end };

struct TextStyle {
  double size = 12;
  Anchor anchor = Anchor::start;
  bool bold = false;
  Ink ink = {Ink::text};
};

class Canvas {
 public:
  virtual ~Canvas() = default;

  virtual void polyline(std::span<const Point> points, const Stroke& stroke) = 0;
  /// Filled; its outline may be of any shape.
  virtual void polygon(std::span<const Point> points, Ink ink, double opacity) = 0;
  virtual void disc(Point center, double radius, Ink ink) = 0;
  /// `at` is on the base line.
  virtual void text(Point at, std::string_view words, const TextStyle& style) = 0;
  virtual double text_width(std::string_view words, const TextStyle& style) const = 0;

  /// What is drawn until end_plot() is cut off at this area.
  virtual void begin_plot(const Rect& area) = 0;
  virtual void end_plot() = 0;
  /// What is drawn until end_series() shows these values.
  virtual void begin_series(const Series& series, Ink ink, std::span<const double> x, std::span<const double> y) = 0;
  virtual void end_series() = 0;
};

/// The parts of a dashed line that are drawn.
std::vector<std::vector<Point>> dashes_of(std::span<const Point> points, double on, double off);

}  // namespace lockstep::report
