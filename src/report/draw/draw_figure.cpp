// SPDX-License-Identifier: Apache-2.0
#include "report/draw/draw_figure.h"

#include <algorithm>
#include <cmath>

#include "lockstep/base/error.h"

namespace lockstep::report {
namespace {

constexpr double tick_size = 11, title_size = 13, legend_size = 11.5;
constexpr size_t most_points = 600;  // of a line: two for each pixel of a chart

void check(const Figure& figure) {
  for (const auto& series : figure.series) {
    require(series.x.size() == series.y.size(), "figure", "series '", series.name, "' of '", figure.title, "' has ",
            series.x.size(), " x and ", series.y.size(), " y, expected as many");
    require(!figure.stacked || series.x == figure.series[0].x, "figure", "series '", series.name, "' of the stack '",
            figure.title, "' has other x than the first, expected the same");
    require(figure.lanes.empty() || series.x.size() % 2 == 0, "figure", "series '", series.name, "' of '", figure.title,
            "' has ", series.x.size(), " points, expected two a box");
  }
}

bool shows(const Axis& axis, double value) {
  return std::isfinite(value) && (!axis.log || value > 0);
}

// Long lines are thinned: of each stretch the lowest and the highest point stay, so that no spike is lost.
Series thinned(const Series& series) {
  if (series.x.size() <= most_points) return series;
  Series thin = series;
  thin.x.clear();
  thin.y.clear();
  const size_t stretches = most_points / 2;
  for (size_t s = 0; s < stretches; ++s) {
    const size_t begin = series.x.size() * s / stretches, end = series.x.size() * (s + 1) / stretches;
    size_t low = begin, high = begin;
    for (size_t i = begin; i < end; ++i) {
      if (!(series.y[i] >= series.y[low])) low = i;
      if (!(series.y[i] <= series.y[high])) high = i;
    }
    for (const size_t i : {std::min(low, high), std::max(low, high)}) {
      if (i == high && low == high && !thin.x.empty() && thin.x.back() == series.x[i]) continue;
      thin.x.push_back(series.x[i]);
      thin.y.push_back(series.y[i]);
    }
  }
  return thin;
}

// A stack's lines lie on top of each other; tooltips still show each one's own values.
std::vector<Series> tops_of(const Figure& figure) {
  std::vector<Series> tops = figure.series;
  for (size_t s = 1; figure.stacked && s < tops.size(); ++s)
    for (size_t i = 0; i < tops[s].y.size(); ++i) tops[s].y[i] += tops[s - 1].y[i];
  return tops;
}

struct Range {
  double low = 0, high = 1;
  bool empty = true;
};

// A few values far above all others would press the rest flat: the axis ends above the rest, and they leave the plot.
double without_outliers(std::vector<double> values) {
  const double high = *std::max_element(values.begin(), values.end());
  if (values.size() < 20) return high;
  const auto near_top = values.begin() + static_cast<std::ptrdiff_t>(values.size() * 97 / 100);
  std::nth_element(values.begin(), near_top, values.end());
  return *near_top > 0 && high > 8 * *near_top ? 2 * *near_top : high;
}

Range range_of(const Figure& figure, const std::vector<Series>& lines, bool of_x) {
  const Axis& axis = of_x ? figure.x : figure.y;
  std::vector<double> values;
  for (const auto& line : lines)
    for (size_t i = 0; i < line.x.size() && !line.reference; ++i)
      if (shows(figure.x, line.x[i]) && shows(figure.y, line.y[i])) values.push_back(of_x ? line.x[i] : line.y[i]);
  Range range;
  range.empty = values.empty();
  if (!range.empty) {
    range.low = *std::min_element(values.begin(), values.end());
    range.high = of_x || axis.log ? *std::max_element(values.begin(), values.end()) : without_outliers(values);
  } else if (axis.log) {
    range.low = 0.1;
  }
  if (!of_x && !axis.log && range.low > 0 && (figure.stacked || range.low < 0.4 * range.high)) range.low = 0;
  if (axis.low) range.low = *axis.low;
  if (axis.high) range.high = *axis.high;
  range.high = std::max(range.high, range.low);
  return range;
}

// A row each, the first one on top.
Ticks lane_ticks(const std::vector<std::string>& lanes) {
  Ticks ticks{.low = static_cast<double>(lanes.size()) - 0.5, .high = -0.5};
  for (size_t lane = 0; lane < lanes.size(); ++lane) ticks.at.push_back(static_cast<double>(lane));
  ticks.labels = lanes;
  return ticks;
}

Ticks ticks_of(const Axis& axis, const Range& range, double pixels, bool widen) {
  const int most = std::max(2, static_cast<int>(pixels));
  return axis.log ? log_ticks(range.low, range.high, most)
                  : linear_ticks(range.low, range.high, most, widen, axis.whole);
}

double share_of(const Axis& axis, const Ticks& ticks, double value) {
  if (axis.log) return std::log(value / ticks.low) / std::log(ticks.high / ticks.low);
  return (value - ticks.low) / (ticks.high - ticks.low);
}

class Drawing {
 public:
  Drawing(Canvas& canvas, const Figure& figure, const Rect& area) : canvas_(canvas), figure_(figure), area_(area) {}

  Drawn draw(bool heading) {
    double top = area_.top + 10;
    if (heading) top = draw_heading();
    lines_ = tops_of(figure_);
    const Range x = range_of(figure_, lines_, true), y = range_of(figure_, lines_, false);
    lay_out(top, x, y);
    draw_axes();
    if (x.empty)
      canvas_.text({(plot_.left + plot_.right) / 2, (plot_.top + plot_.bottom) / 2}, "nothing measured yet",
                   {12, Anchor::middle, false, {Ink::muted}});
    canvas_.begin_plot({plot_.left - 5, plot_.top - 4, plot_.right + 5, plot_.bottom + 1});
    for (size_t s = 0; s < lines_.size(); ++s) draw_series(s);
    canvas_.end_plot();
    return {plot_, x_, y_};
  }

 private:
  Ink ink_of(const Series& series) const { return series.reference ? Ink{Ink::muted} : Ink{Ink::series, series.color}; }

  double draw_heading() {
    double y = area_.top + 20;
    const TextStyle title{title_size, Anchor::start, true};
    canvas_.text({area_.left + 12, y}, figure_.title, title);
    if (!figure_.y.label.empty())
      canvas_.text({area_.left + 20 + canvas_.text_width(figure_.title, title), y}, figure_.y.label,
                   {tick_size, Anchor::start, false, {Ink::muted}});
    double x = area_.left + 12;
    const TextStyle style{legend_size, Anchor::start, false, {Ink::text}};
    if (figure_.series.size() > 1) y += 19;
    for (size_t s = 0; figure_.series.size() > 1 && s < figure_.series.size(); ++s) {
      const Series& series = figure_.series[s];
      const double width = 24 + canvas_.text_width(series.name, style);
      if (x > area_.left + 12 && x + width > area_.right - 12) {
        x = area_.left + 12;
        y += 16;
      }
      draw_swatch(series, x, y - 4);
      canvas_.text({x + 24, y}, series.name, style);
      x += width + 18;
    }
    return y + 14;
  }

  void draw_swatch(const Series& series, double x, double y) {
    if (figure_.stacked || !figure_.lanes.empty()) {
      const Point box[] = {{x + 5, y - 5}, {x + 15, y - 5}, {x + 15, y + 5}, {x + 5, y + 5}};
      return canvas_.polygon(box, ink_of(series), 1);
    }
    const Point line[] = {{x, y}, {x + 18, y}};
    canvas_.polyline(line, {ink_of(series), 2, series.dashed || series.reference});
  }

  void lay_out(double top, const Range& x, const Range& y) {
    const double bottom = area_.bottom - (figure_.x.label.empty() ? 24 : 40);
    y_ = figure_.lanes.empty() ? ticks_of(figure_.y, y, (bottom - top) / 38, true) : lane_ticks(figure_.lanes);
    double labels = 0;
    for (const auto& label : y_.labels) labels = std::max(labels, canvas_.text_width(label, {tick_size}));
    plot_ = {area_.left + 12 + labels + 7, top, area_.right - 16, bottom};
    x_ = ticks_of(figure_.x, x, plot_.width() / 58, false);
  }

  void draw_axes() {
    for (size_t t = 0; t < y_.at.size(); ++t) {
      const double y = at({x_.low, y_.at[t]}).y;
      const Point line[] = {{plot_.left, y}, {plot_.right, y}};
      canvas_.polyline(line, {{Ink::grid}, 1});
      canvas_.text({plot_.left - 7, y + tick_size * 0.36}, y_.labels[t], {tick_size, Anchor::end, false, {Ink::muted}});
    }
    const Point base[] = {{plot_.left, plot_.bottom}, {plot_.right, plot_.bottom}};
    canvas_.polyline(base, {{Ink::axis}, 1});
    for (size_t t = 0; t < x_.at.size(); ++t) {
      const double x = at({x_.at[t], y_.low}).x;
      const Point mark[] = {{x, plot_.bottom}, {x, plot_.bottom + 4}};
      canvas_.polyline(mark, {{Ink::axis}, 1});
      canvas_.text({x, plot_.bottom + 16}, x_.labels[t], {tick_size, Anchor::middle, false, {Ink::muted}});
    }
    if (!figure_.x.label.empty())
      canvas_.text({(plot_.left + plot_.right) / 2, plot_.bottom + 32}, figure_.x.label,
                   {tick_size, Anchor::middle, false, {Ink::muted}});
  }

  Point at(Point value) const {
    return {plot_.left + share_of(figure_.x, x_, value.x) * plot_.width(),
            plot_.bottom - share_of(figure_.y, y_, value.y) * plot_.height()};
  }

  // What lies far outside of the plot comes near, so that no renderer sees huge numbers.
  Point near(Point point) const {
    const double wide = 4 * plot_.width(), high = 4 * plot_.height();
    return {std::clamp(point.x, plot_.left - wide, plot_.right + wide),
            std::clamp(point.y, plot_.top - high, plot_.bottom + high)};
  }

  // The unbroken pieces of a line.
  std::vector<std::vector<Point>> pieces_of(const Series& line) const {
    std::vector<std::vector<Point>> pieces(1);
    for (size_t i = 0; i < line.x.size(); ++i) {
      if (shows(figure_.x, line.x[i]) && shows(figure_.y, line.y[i]))
        pieces.back().push_back(near(at({line.x[i], line.y[i]})));
      else if (!pieces.back().empty())
        pieces.emplace_back();
    }
    if (pieces.back().empty()) pieces.pop_back();
    return pieces;
  }

  void draw_series(size_t number) {
    const Series& own = figure_.series[number];
    const Ink ink = ink_of(own);
    if (!figure_.lanes.empty()) return draw_boxes(own, ink);
    const Series line = figure_.stacked ? lines_[number] : thinned(lines_[number]);
    canvas_.begin_series(own, ink, line.x, figure_.stacked ? own.y : line.y);
    const auto pieces = pieces_of(line);
    if (figure_.stacked) {
      draw_area(number, pieces, ink);
    } else {
      const double width = own.reference ? 1.25 : own.dashed ? 1.5 : 2;
      for (const auto& piece : pieces)
        if (piece.size() > 1) canvas_.polyline(piece, {ink, width, own.dashed || own.reference});
      for (const auto& piece : pieces)
        if ((line.x.size() <= 12 && !own.reference) || piece.size() == 1)
          for (const Point& point : piece) canvas_.disc(point, 3, ink);
    }
    canvas_.end_series();
  }

  void draw_boxes(const Series& series, Ink ink) {
    canvas_.begin_series(series, ink, series.x, series.y);
    for (size_t i = 0; i + 1 < series.x.size(); i += 2) {
      const Point from = near(at({series.x[i], series.y[i] - 0.36}));
      const Point to = near(at({series.x[i + 1], series.y[i] + 0.36}));
      const double right = std::max(to.x - 0.6, from.x + 0.3);  // so that one ends visibly before the next begins
      const Point box[] = {from, {right, from.y}, {right, to.y}, {from.x, to.y}};
      canvas_.polygon(box, ink, 1);
    }
    canvas_.end_series();
  }

  void draw_area(size_t number, const std::vector<std::vector<Point>>& pieces, Ink ink) {
    const Series& own = figure_.series[number];
    std::vector<Point> outline;
    for (const auto& piece : pieces) outline.insert(outline.end(), piece.begin(), piece.end());
    if (outline.size() == 1) return canvas_.disc(outline[0], 3, ink);
    for (size_t i = own.x.size(); i-- > 0;)
      if (std::isfinite(lines_[number].y[i])) {
        const double base = number == 0 ? y_.low : lines_[number - 1].y[i];
        outline.push_back(near(at({own.x[i], base})));
      }
    if (!outline.empty()) canvas_.polygon(outline, ink, 0.85);
  }

  Canvas& canvas_;
  const Figure& figure_;
  const Rect area_;
  std::vector<Series> lines_;
  Rect plot_{};
  Ticks x_, y_;
};

}  // namespace

Drawn draw_figure(Canvas& canvas, const Figure& figure, const Rect& area, bool heading) {
  check(figure);
  return Drawing(canvas, figure, area).draw(heading);
}

}  // namespace lockstep::report
