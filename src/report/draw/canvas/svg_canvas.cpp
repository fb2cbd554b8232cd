// SPDX-License-Identifier: Apache-2.0
#include "report/draw/canvas/svg_canvas.h"

#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/report/format.h"
#include "report/escape.h"

namespace lockstep::report {
namespace {

// A tenth of a pixel is as fine as anybody sees.
std::string coordinate(double value) {
  std::string digits = fixed(value, 1);
  if (digits.ends_with(".0")) digits.resize(digits.size() - 2);
  return digits;
}

std::string style_of(const Stroke& stroke) {
  std::string style =
      lockstep::text(" class=\"", class_of(stroke.ink), "\" fill=\"none\" stroke=\"currentColor\" stroke-width=\"",
                     compact(stroke.width, 2), "\"");
  if (stroke.dashed) style += " stroke-dasharray=\"5 3.5\"";
  if (stroke.opacity < 1) style += " opacity=\"" + compact(stroke.opacity, 2) + "\"";
  return style;
}

std::string joined(std::span<const double> values) {
  std::string out;
  for (const double value : values) {
    if (!out.empty()) out += ' ';
    out += std::isfinite(value) ? compact(value, 6) : "nan";
  }
  return out;
}

}  // namespace

void SvgCanvas::add_points(std::span<const Point> points) {
  out_ += " points=\"";
  for (size_t i = 0; i < points.size(); ++i)
    out_.append(i == 0 ? "" : " ").append(coordinate(points[i].x)).append(",").append(coordinate(points[i].y));
  out_ += "\"";
}

void SvgCanvas::polyline(std::span<const Point> points, const Stroke& stroke) {
  out_ += "<polyline" + style_of(stroke) + " stroke-linejoin=\"round\"";
  add_points(points);
  out_ += "/>\n";
}

void SvgCanvas::polygon(std::span<const Point> points, Ink ink, double opacity) {
  out_ += lockstep::text("<polygon class=\"", class_of(ink), "\" fill=\"currentColor\"");
  if (opacity < 1) out_ += " opacity=\"" + compact(opacity, 2) + "\"";
  add_points(points);
  out_ += "/>\n";
}

void SvgCanvas::disc(Point center, double radius, Ink ink) {
  out_ += lockstep::text("<circle class=\"", class_of(ink), "\" fill=\"currentColor\" cx=\"", coordinate(center.x),
                         "\" cy=\"", coordinate(center.y), "\" r=\"", coordinate(radius), "\"/>\n");
}

void SvgCanvas::text(Point at, std::string_view words, const TextStyle& style) {
  constexpr const char* anchors[] = {"", " text-anchor=\"middle\"", " text-anchor=\"end\""};
  out_ += lockstep::text("<text class=\"", class_of(style.ink), "\" fill=\"currentColor\" font-size=\"",
                         coordinate(style.size), "\"", style.bold ? " font-weight=\"600\"" : "",
                         anchors[static_cast<int>(style.anchor)], " x=\"", coordinate(at.x), "\" y=\"",
                         coordinate(at.y), "\">", escape(words), "</text>\n");
}

// Whatever font the viewer has: its digits are about this wide.
double SvgCanvas::text_width(std::string_view words, const TextStyle& style) const {
  return static_cast<double>(columns_of(words)) * style.size * (style.bold ? 0.6 : 0.57);
}

void SvgCanvas::begin_plot(const Rect& area) {
  plot_ = area;
  const std::string id = lockstep::text(name_, "-", plots_++);
  out_ += lockstep::text("<clipPath id=\"", id, "\"><rect x=\"", coordinate(area.left), "\" y=\"", coordinate(area.top),
                         "\" width=\"", coordinate(area.width()), "\" height=\"", coordinate(area.height()),
                         "\"/></clipPath>\n<g clip-path=\"url(#", id, ")\">\n");
}

void SvgCanvas::end_plot() {
  out_ += "</g>\n";
}

void SvgCanvas::begin_series(const Series& series, Ink ink, std::span<const double> x, std::span<const double> y) {
  out_ += lockstep::text("<g data-series=\"", escape(series.name), "\" data-ink=\"", class_of(ink), "\"");
  if (series.group >= 0) out_ += lockstep::text(" data-group=\"", series.group, "\"");
  out_ += lockstep::text(" data-x=\"", joined(x), "\" data-y=\"", joined(y), "\">\n");
}

void SvgCanvas::end_series() {
  out_ += "</g>\n";
}

}  // namespace lockstep::report
