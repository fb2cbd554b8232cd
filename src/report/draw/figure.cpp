// SPDX-License-Identifier: Apache-2.0
#include "lockstep/report/figure.h"

#include "lockstep/base/detail/file.h"
#include "lockstep/base/error.h"
#include "lockstep/pictures/png.h"
#include "lockstep/report/format.h"
#include "report/draw/canvas/raster_canvas.h"
#include "report/draw/canvas/svg_canvas.h"
#include "report/draw/draw_figure.h"
#include "report/escape.h"

namespace lockstep::report {
namespace {

constexpr const char* fonts = "system-ui,-apple-system,'Segoe UI',Roboto,Helvetica,Arial,sans-serif";

Rect place_of(size_t number, FigureSize size) {
  const double left = static_cast<double>(number) * size.width;
  return {left, 0, left + size.width, static_cast<double>(size.height)};
}

void check_size(std::span<const Figure> figures, FigureSize size) {
  require(!figures.empty(), "figure", "got no figures, expected at least one");
  require(size.width >= 120 && size.height >= 100 && size.width <= 4096 && size.height <= 4096, "figure", "size is ",
          size.width, " x ", size.height, ", expected 120 x 100 to 4096 x 4096");
}

// A name that is the same for the same picture: ids of several pictures on a page must differ.
std::string id_of(const Figure& figure, FigureSize size) {
  uint32_t hash = 2166136261;
  const auto mix = [&](std::string_view bytes) {
    for (const char byte : bytes) hash = (hash ^ static_cast<uint8_t>(byte)) * 16777619;
  };
  mix(figure.title);
  mix(text(size.width, "x", size.height, figure.x.label, figure.y.label));
  for (const auto& series : figure.series) mix(series.name);
  return text("plot-", std::hex, hash);
}

std::string range_of(const char* name, const Ticks& ticks, bool log) {
  return text(" data-", name, "-range=\"", compact(ticks.low, 9), " ", compact(ticks.high, 9), "\"",
              log ? text(" data-", name, "-log=\"\"") : "");
}

}  // namespace

std::string to_svg(std::span<const Figure> figures, FigureSize size) {
  check_size(figures, size);
  std::string elements, title;
  for (size_t f = 0; f < figures.size(); ++f) {
    SvgCanvas canvas(text(id_of(figures[f], size), "-", f));
    draw_figure(canvas, figures[f], place_of(f, size), true);
    elements += canvas.elements();
    title += (f == 0 ? "" : ", ") + figures[f].title;
  }
  const size_t width = size.width * figures.size();
  return text("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", width, "\" height=\"", size.height,
              "\" viewBox=\"0 0 ", width, " ", size.height, "\" role=\"img\" font-family=\"", escape(fonts),
              "\">\n<title>", escape(title), "</title>\n<style>", ink_rules(Theme::light),
              "@media(prefers-color-scheme:dark){", ink_rules(Theme::dark),
              "}</style>\n<rect class=\"ink-surface\" fill=\"currentColor\" width=\"100%\" height=\"100%\"/>\n",
              elements, "</svg>\n");
}

std::string to_inline_svg(const Figure& figure, FigureSize size) {
  check_size({&figure, 1}, size);
  SvgCanvas canvas(id_of(figure, size));
  const Drawn drawn = draw_figure(canvas, figure, place_of(0, size), false);
  const Rect& plot = drawn.plot;
  return text("<svg viewBox=\"0 0 ", size.width, " ", size.height, "\" role=\"img\" aria-label=\"",
              escape(figure.title), "\" data-plot=\"", fixed(plot.left, 1), " ", fixed(plot.top, 1), " ",
              fixed(plot.right, 1), " ", fixed(plot.bottom, 1), "\" data-x-label=\"", escape(figure.x.label), "\"",
              range_of("x", drawn.x, figure.x.log), range_of("y", drawn.y, figure.y.log),
              figure.stacked ? " data-stacked=\"\"" : "", ">\n", canvas.elements(), "</svg>\n");
}

pictures::Image to_image(std::span<const Figure> figures, FigureSize size, Theme theme, double scale) {
  check_size(figures, size);
  require(scale >= 0.5 && scale <= 8, "figure", "scale is ", scale, ", expected 0.5 to 8");
  RasterCanvas canvas(size.width * static_cast<int>(figures.size()), size.height, theme, scale);
  for (size_t f = 0; f < figures.size(); ++f) draw_figure(canvas, figures[f], place_of(f, size), true);
  return canvas.image();
}

void write_figures(const std::filesystem::path& stem, std::span<const Figure> figures, FigureSize size) {
  write_file(stem.string() + ".svg", to_svg(figures, size));
  write_file(stem.string() + ".png", pictures::encode_png(to_image(figures, size)));
}

}  // namespace lockstep::report
