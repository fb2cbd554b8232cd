// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "lockstep/pictures/image.h"
#include "report/draw/canvas/canvas.h"

namespace lockstep::report {

/// Paints on pixels, antialiased: a pixel gets as much of a colour as the shape covers of it, by distance to its edge.
class RasterCanvas : public Canvas {
 public:
  RasterCanvas(int width, int height, Theme theme, double scale);

  void polyline(std::span<const Point> points, const Stroke& stroke) override;
  void polygon(std::span<const Point> points, Ink ink, double opacity) override;
  void disc(Point center, double radius, Ink ink) override;
  void text(Point at, std::string_view words, const TextStyle& style) override;
  double text_width(std::string_view words, const TextStyle& style) const override;
  void begin_plot(const Rect& area) override;
  void end_plot() override;
  void begin_series(const Series&, Ink, std::span<const double>, std::span<const double>) override {}
  void end_series() override {}

  const pictures::Image& image() const { return image_; }

 private:
  // A rectangle of pixels with how much of each a shape covers.
  struct Coverage {
    int left, top, right, bottom;  // right and bottom are outside
    std::vector<float> values;
  };
  Coverage cover(double left, double top, double right, double bottom) const;
  static void add_line(Coverage& coverage, Point from, Point to, double radius);
  void strokes(const std::vector<std::vector<Point>>& lines, double radius, Ink ink, double opacity);
  void paint(const Coverage& coverage, Ink ink, double opacity);

  pictures::Image image_;
  Theme theme_;
  double scale_;
  Rect clip_;
};

}  // namespace lockstep::report
