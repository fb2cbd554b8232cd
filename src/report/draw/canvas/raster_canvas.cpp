// SPDX-License-Identifier: Apache-2.0
#include "report/draw/canvas/raster_canvas.h"

#include <algorithm>
#include <cmath>

#include "report/draw/canvas/stroke_font.h"

namespace lockstep::report {

RasterCanvas::RasterCanvas(int width, int height, Theme theme, double scale)
    : image_{static_cast<int>(std::lround(width * scale)), static_cast<int>(std::lround(height * scale)), 3},
      theme_(theme),
      scale_(scale) {
  const Color ground = color_of({Ink::surface}, theme);
  image_.pixels.reserve(static_cast<size_t>(image_.width) * image_.height * 3);
  for (int i = 0; i < image_.width * image_.height; ++i)
    for (const uint8_t part : {ground.red, ground.green, ground.blue}) image_.pixels.push_back(part);
  end_plot();
}

void RasterCanvas::begin_plot(const Rect& area) {
  clip_ = {area.left * scale_, area.top * scale_, area.right * scale_, area.bottom * scale_};
}

void RasterCanvas::end_plot() {
  clip_ = {0, 0, static_cast<double>(image_.width), static_cast<double>(image_.height)};
}

// The pixels that a shape with these bounds may touch, none of them covered yet.
RasterCanvas::Coverage RasterCanvas::cover(double left, double top, double right, double bottom) const {
  Coverage coverage{static_cast<int>(std::floor(std::max(left, clip_.left))),
                    static_cast<int>(std::floor(std::max(top, clip_.top))),
                    static_cast<int>(std::ceil(std::min(right, clip_.right))),
                    static_cast<int>(std::ceil(std::min(bottom, clip_.bottom))),
                    {}};
  coverage.right = std::max(coverage.right, coverage.left);
  coverage.bottom = std::max(coverage.bottom, coverage.top);
  coverage.values.resize(static_cast<size_t>(coverage.right - coverage.left) * (coverage.bottom - coverage.top));
  return coverage;
}

// A line with round ends. Where lines of one shape overlap, a pixel keeps the larger share: joints are not darker.
void RasterCanvas::add_line(Coverage& coverage, Point from, Point to, double radius) {
  const double dx = to.x - from.x, dy = to.y - from.y, length = dx * dx + dy * dy;
  const double reach = radius + 1;
  const int top = std::max(coverage.top, static_cast<int>(std::floor(std::min(from.y, to.y) - reach)));
  const int bottom = std::min(coverage.bottom, static_cast<int>(std::ceil(std::max(from.y, to.y) + reach)));
  const int left = std::max(coverage.left, static_cast<int>(std::floor(std::min(from.x, to.x) - reach)));
  const int right = std::min(coverage.right, static_cast<int>(std::ceil(std::max(from.x, to.x) + reach)));
  for (int y = top; y < bottom; ++y)
    for (int x = left; x < right; ++x) {
      const double px = x + 0.5 - from.x, py = y + 0.5 - from.y;
      const double along = length > 0 ? std::clamp((px * dx + py * dy) / length, 0., 1.) : 0;
      const double distance = std::hypot(px - along * dx, py - along * dy);
      const double share = std::clamp(radius + 0.5 - distance, 0., std::min(1., 2 * radius));
      float& value =
          coverage
              .values[static_cast<size_t>(y - coverage.top) * (coverage.right - coverage.left) + (x - coverage.left)];
      value = std::max(value, static_cast<float>(share));
    }
}

// Lines in pixels of the picture.
void RasterCanvas::strokes(const std::vector<std::vector<Point>>& lines, double radius, Ink ink, double opacity) {
  Rect bounds{1e9, 1e9, -1e9, -1e9};
  for (const auto& line : lines)
    for (const Point& point : line)
      bounds = {std::min(bounds.left, point.x), std::min(bounds.top, point.y), std::max(bounds.right, point.x),
                std::max(bounds.bottom, point.y)};
  const double reach = radius + 1;
  Coverage coverage = cover(bounds.left - reach, bounds.top - reach, bounds.right + reach, bounds.bottom + reach);
  for (const auto& line : lines)
    for (size_t i = 0; i < line.size(); ++i)
      if (i > 0 || line.size() == 1) add_line(coverage, line[i > 0 ? i - 1 : 0], line[i], radius);
  paint(coverage, ink, opacity);
}

void RasterCanvas::paint(const Coverage& coverage, Ink ink, double opacity) {
  const Color color = color_of(ink, theme_);
  size_t at = 0;
  for (int y = coverage.top; y < coverage.bottom; ++y)
    for (int x = coverage.left; x < coverage.right; ++x) {
      const double share = coverage.values[at++] * opacity;
      if (share <= 0 || x < 0 || y < 0 || x >= image_.width || y >= image_.height) continue;
      uint8_t* pixel = &image_.pixels[(static_cast<size_t>(y) * image_.width + x) * 3];
      const uint8_t parts[] = {color.red, color.green, color.blue};
      for (int c = 0; c < 3; ++c)
        pixel[c] = static_cast<uint8_t>(std::lround(pixel[c] + (parts[c] - pixel[c]) * share));
    }
}

void RasterCanvas::polyline(std::span<const Point> points, const Stroke& stroke) {
  std::vector<Point> scaled;
  for (const Point& point : points) scaled.push_back({point.x * scale_, point.y * scale_});
  const auto lines =
      stroke.dashed ? dashes_of(scaled, 5 * scale_, 3.5 * scale_) : std::vector<std::vector<Point>>{scaled};
  strokes(lines, stroke.width * scale_ / 2, stroke.ink, stroke.opacity);
}

// Even-odd, four sample rows a pixel; along a row the shares are exact.
void RasterCanvas::polygon(std::span<const Point> points, Ink ink, double opacity) {
  constexpr int rows = 4;
  std::vector<double> crossings;
  Coverage coverage = cover(0, 0, image_.width, image_.height);
  const int width = coverage.right - coverage.left;
  for (int row = coverage.top * rows; row < coverage.bottom * rows; ++row) {
    const double y = (row + 0.5) / rows;
    crossings.clear();
    for (size_t i = 0; i < points.size(); ++i) {
      const Point a{points[i].x * scale_, points[i].y * scale_};
      const Point& next = points[(i + 1) % points.size()];
      const Point b{next.x * scale_, next.y * scale_};
      if ((a.y <= y) != (b.y <= y)) crossings.push_back(a.x + (y - a.y) / (b.y - a.y) * (b.x - a.x));
    }
    std::sort(crossings.begin(), crossings.end());
    float* const values = coverage.values.data() + static_cast<size_t>(row / rows - coverage.top) * width;
    for (size_t i = 0; i + 1 < crossings.size(); i += 2) {
      const double from = std::clamp(crossings[i] - coverage.left, 0., static_cast<double>(width));
      const double to = std::clamp(crossings[i + 1] - coverage.left, 0., static_cast<double>(width));
      for (int x = static_cast<int>(from); x < std::ceil(to); ++x)
        values[x] += static_cast<float>((std::min<double>(to, x + 1) - std::max<double>(from, x)) / rows);
    }
  }
  paint(coverage, ink, opacity);
}

void RasterCanvas::disc(Point center, double radius, Ink ink) {
  strokes({{{center.x * scale_, center.y * scale_}}}, radius * scale_, ink, 1);
}

double RasterCanvas::text_width(std::string_view words, const TextStyle& style) const {
  double units = 0;
  for (const char32_t character : characters_of(words)) units += glyph(character).width + glyph_gap;
  return std::max(0., units - glyph_gap) * style.size / em_units;
}

void RasterCanvas::text(Point at, std::string_view words, const TextStyle& style) {
  const double unit = style.size / em_units * scale_;
  const double width = text_width(words, style);
  double x = (at.x - (style.anchor == Anchor::end ? width : style.anchor == Anchor::middle ? width / 2 : 0)) * scale_;
  // All glyphs at once: thin lines that touch must not add up.
  std::vector<std::vector<Point>> lines;
  for (const char32_t character : characters_of(words)) {
    const Glyph& shape = glyph(character);
    for (const auto& stroke : shape.strokes) {
      auto& line = lines.emplace_back();
      for (const Point& point : stroke) line.push_back({x + point.x * unit, at.y * scale_ - point.y * unit});
    }
    x += (shape.width + glyph_gap) * unit;
  }
  strokes(lines, style.size * scale_ * (style.bold ? 0.068 : 0.046), style.ink, 1);
}

}  // namespace lockstep::report
