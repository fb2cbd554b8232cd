// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/pictures/image.h"

/// Line charts, drawn by ourselves: the same layout as SVG (a file, or part of a page) and as a picture.
namespace lockstep::report {

enum class Theme { light, dark };

/// A line. `x` and `y` have the same length; where y is no number the line has a gap.
struct Series {
  std::string name;
  std::vector<double> x = {};
  std::vector<double> y = {};
  int color = 0;  // one of eight, counted round
  bool dashed = false;
  int group = -1;          // of a page's lines that are shown and hidden together; none
  bool reference = false;  // something to compare with, such as ideal speedup: grey, and not part of the axes' range
};

struct Axis {
  std::string label = {};
  bool log = false;                // what is not positive is left out
  bool whole = false;              // ticks at whole numbers only
  std::optional<double> low = {};  // else from the data
  std::optional<double> high = {};
};

struct Figure {
  std::string title;
  Axis x = {};
  Axis y = {};
  std::vector<Series> series = {};
  bool stacked = false;  // areas on top of each other, all with the same x
  /// Names of rows, from the top; empty: lines. Then y is a row's number, and each pair of a series' points is a box
  /// from one x to the next.
  std::vector<std::string> lanes = {};
};

/// Of one figure, in pixels of a page.
struct FigureSize {
  int width = 480;
  int height = 300;
};

/// A file of its own: figures side by side, with a legend, light or dark as the viewer prefers.
/// Throws Error, as all that draws, where a series' x and y differ in length or those of a stack in x.
std::string to_svg(std::span<const Figure> figures, FigureSize size = {});

/// Figures side by side on one picture, `scale` pixels for one of a page. Needs no font: it has its own.
pictures::Image to_image(std::span<const Figure> figures, FigureSize size = {}, Theme theme = Theme::light,
                         double scale = 2);

/// Figures side by side: STEM.svg and STEM.png, replaced whole. Throws Error when they can't be written.
void write_figures(const std::filesystem::path& stem, std::span<const Figure> figures, FigureSize size = {});

}  // namespace lockstep::report
