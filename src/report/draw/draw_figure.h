// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/report/figure.h"
#include "report/draw/canvas/canvas.h"
#include "report/draw/ticks.h"

namespace lockstep::report {

/// What a figure's axes became.
struct Drawn {
  Rect plot;
  Ticks x, y;
};

/// Throws Error on series that don't fit together. `heading`: with title and legend.
Drawn draw_figure(Canvas& canvas, const Figure& figure, const Rect& area, bool heading);

/// Part of a page: no legend and no colours of its own. Classes `ink-0`.. and `ink-text`, `ink-muted`, `ink-axis`,
/// `ink-grid` are to give `color`; groups with data-series, data-x and data-y hold the values, data-plot the plot's
/// area.
std::string to_inline_svg(const Figure& figure, FigureSize size = {});

}  // namespace lockstep::report
