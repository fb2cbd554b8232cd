// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "report/draw/canvas/canvas.h"

namespace lockstep::report {

/// Writes the elements of an SVG picture, without the <svg> around them. Colours are classes (see palette.h).
class SvgCanvas : public Canvas {
 public:
  /// `name` makes this picture's ids its own: several may stand on one page.
  explicit SvgCanvas(std::string name) : name_(std::move(name)) {}

  void polyline(std::span<const Point> points, const Stroke& stroke) override;
  void polygon(std::span<const Point> points, Ink ink, double opacity) override;
  void disc(Point center, double radius, Ink ink) override;
  void text(Point at, std::string_view words, const TextStyle& style) override;
  double text_width(std::string_view words, const TextStyle& style) const override;
  void begin_plot(const Rect& area) override;
  void end_plot() override;
  void begin_series(const Series& series, Ink ink, std::span<const double> x, std::span<const double> y) override;
  void end_series() override;

  const std::string& elements() const { return out_; }
  /// The area of the last plot.
  const Rect& plot() const { return plot_; }

 private:
  void add_points(std::span<const Point> points);

  std::string name_;
  std::string out_;
  Rect plot_{};
  int plots_ = 0;
};

}  // namespace lockstep::report
