// SPDX-License-Identifier: Apache-2.0
#include "lockstep/report/figure.h"
#include "lockstep/pictures/png.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "report/draw/canvas/raster_canvas.h"
#include "report/draw/canvas/stroke_font.h"
#include "report/draw/canvas/svg_canvas.h"
#include "report/draw/draw_figure.h"
#include "report/occurrences.h"
#include "support/error_of.h"

namespace lockstep::report {
namespace {

using test::error_of;

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr FigureSize size{400, 300};
const Rect area{0, 0, 400, 300};

std::array<uint8_t, 3> pixel(const pictures::Image& image, double x, double y) {
  const size_t at = (static_cast<size_t>(y) * image.width + static_cast<size_t>(x)) * 3;
  return {image.pixels[at], image.pixels[at + 1], image.pixels[at + 2]};
}

std::array<uint8_t, 3> rgb(Ink ink, Theme theme = Theme::light) {
  const Color color = color_of(ink, theme);
  return {color.red, color.green, color.blue};
}

Figure flat_line() {
  return {.title = "Flat", .y = {.low = 0, .high = 1}, .series = {{"level", {0, 1, 2}, {0.5, 0.5, 0.5}}}};
}

TEST(FigureAsPicture, HasItsLineWhereItsAxesSay) {
  for (const Theme theme : {Theme::light, Theme::dark}) {
    RasterCanvas canvas(size.width, size.height, theme, 2);
    const Drawn drawn = draw_figure(canvas, flat_line(), area, true);
    const double middle = drawn.plot.top + drawn.plot.height() / 2;
    const double x = drawn.plot.left + drawn.plot.width() / 4;
    EXPECT_EQ(pixel(canvas.image(), 2 * x, 2 * middle), rgb({Ink::series, 0}, theme));
    EXPECT_EQ(pixel(canvas.image(), 2 * x, 2 * middle - 8), rgb({Ink::surface}, theme));
    EXPECT_EQ(pixel(canvas.image(), 2 * x, 2 * middle + 8), rgb({Ink::surface}, theme));
  }
}

TEST(FigureAsPicture, HasABoxInItsRowWhereLanesAreNamed) {
  const Figure figure{.title = "Step",
                      .x = {.low = 0, .high = 4},
                      .series = {{"forward", {0, 1, 2, 3}, {0, 0, 1, 1}}},
                      .lanes = {"first", "second"}};
  RasterCanvas canvas(size.width, size.height, Theme::light, 2);
  const Drawn drawn = draw_figure(canvas, figure, area, true);
  const auto at = [&](double x, double lane) {
    return pixel(canvas.image(), 2 * (drawn.plot.left + drawn.plot.width() * x / 4),
                 2 * (drawn.plot.top + drawn.plot.height() * (lane + 0.6) / 2));
  };
  const auto ink = rgb({Ink::series, 0}), surface = rgb({Ink::surface});
  EXPECT_EQ(at(0.3, 0), ink);
  EXPECT_EQ(at(2.5, 1), ink);
  EXPECT_EQ(at(2.5, 0), surface);
  EXPECT_EQ(at(0.3, 1), surface);
}

TEST(FigureAsPicture, HasAGapWhereAValueIsNoNumber) {
  Figure figure = flat_line();
  figure.series[0].x = {0, 1, 2, 3};
  figure.series[0].y = {0.5, 0.5, std::nan(""), 0.5};
  RasterCanvas canvas(size.width, size.height, Theme::light, 2);
  const Drawn drawn = draw_figure(canvas, figure, area, true);
  const double middle = drawn.plot.top + drawn.plot.height() / 2;
  const auto at = [&](double share) {
    return pixel(canvas.image(), 2 * (drawn.plot.left + share * drawn.plot.width()), 2 * middle);
  };
  EXPECT_EQ(at(1 / 6.), rgb({Ink::series, 0}));
  EXPECT_NE(at(0.5), rgb({Ink::series, 0}));
  EXPECT_NE(at(5 / 6.), rgb({Ink::series, 0}));
  EXPECT_EQ(at(1), rgb({Ink::series, 0}));
}

TEST(FigureAsPicture, IsTheSameEveryTimeAndAsLargeAsAsked) {
  const Figure figures[] = {flat_line(), flat_line()};
  const pictures::Image image = to_image(figures, size, Theme::dark, 1.5);
  EXPECT_EQ(image.width, 1200);
  EXPECT_EQ(image.height, 450);
  EXPECT_EQ(image, to_image(figures, size, Theme::dark, 1.5));
  EXPECT_EQ(pictures::decode_png(pictures::encode_png(image), "test"), image);
}

TEST(FigureAsPicture, StacksAreasOnTopOfEachOther) {
  Figure figure{.title = "Stack", .y = {.low = 0, .high = 4}, .stacked = true};
  figure.series = {{"lower", {0, 1}, {1, 1}, 0}, {"upper", {0, 1}, {2, 2}, 1}};
  RasterCanvas canvas(size.width, size.height, Theme::light, 1);
  const Rect plot = draw_figure(canvas, figure, area, true).plot;
  const auto hue_at = [&](double y) {
    return pixel(canvas.image(), plot.left + plot.width() / 2, plot.bottom - y / 4 * plot.height());
  };
  const auto lower = hue_at(0.5), upper = hue_at(2);
  EXPECT_GT(lower[2], lower[0]);  // blue
  EXPECT_GT(upper[0], upper[2]);  // orange
  EXPECT_EQ(hue_at(1.5), hue_at(2.5));
  EXPECT_EQ(hue_at(3.5), rgb({Ink::surface}));
}

TEST(FigureAsPicture, OfNothingSaysSo) {
  RasterCanvas empty(size.width, size.height, Theme::light, 1);
  draw_figure(empty, {.title = "Loss"}, area, true);
  SvgCanvas svg("test");
  draw_figure(svg, {.title = "Loss", .y = {.log = true}, .series = {{"train", {1}, {-1}}}}, area, true);
  EXPECT_THAT(svg.elements(), HasSubstr("nothing measured yet"));
}

TEST(StrokeFont, DrawsEveryPrintableCharacterDifferently) {
  std::set<std::string> pictures;  // their PNG files
  for (char c = '!'; c <= '~'; ++c) {
    RasterCanvas canvas(30, 30, Theme::light, 2);
    canvas.text({8, 20}, std::string_view(&c, 1), {16});
    EXPECT_TRUE(pictures.insert(pictures::encode_png(canvas.image())).second) << c;
  }
  RasterCanvas blank(30, 30, Theme::light, 2);
  EXPECT_EQ(pictures.count(pictures::encode_png(blank.image())), 0u);
}

TEST(StrokeFont, ReadsUtf8AndShowsABoxForWhatItLacks) {
  EXPECT_THAT(characters_of("aé€🙂"), ElementsAre(U'a', U'é', U'€', U'🙂'));
  EXPECT_THAT(characters_of("\xff"
                            "a\xe2\x82"),
              ElementsAre(U'\ufffd', U'a', U'\ufffd', U'\ufffd'));
  EXPECT_EQ(&glyph(U'é'), &glyph(U'🙂'));
  EXPECT_NE(&glyph(U'é'), &glyph(U'e'));
}

TEST(Text, EndsWhereItsAnchorSays) {
  RasterCanvas left(200, 40, Theme::light, 1), right(200, 40, Theme::light, 1);
  const double width = left.text_width("Hello", {20});
  left.text({100 - width, 30}, "Hello", {20});
  right.text({100, 30}, "Hello", {20, Anchor::end});
  EXPECT_EQ(left.image(), right.image());
}

TEST(DashedLine, IsDrawnInPartsOfEqualLength) {
  const Point line[] = {{0, 0}, {6, 0}, {6, 5}};
  const auto dashes = dashes_of(line, 4, 3);
  ASSERT_EQ(dashes.size(), 2u);
  EXPECT_EQ(dashes[0].back().x, 4);
  EXPECT_EQ(dashes[1].front().y, 1);
  EXPECT_EQ(dashes[1].back().y, 5);
}

TEST(FigureAsSvg, StandsAloneInLightAndDark) {
  Figure figure = flat_line();
  figure.title = "a < b & \"c\"";
  figure.series.push_back({"<script>", {0, 2}, {0, 1}, 1, true});
  const std::string svg = to_svg({&figure, 1});
  EXPECT_THAT(svg, HasSubstr("xmlns=\"http://www.w3.org/2000/svg\""));
  EXPECT_THAT(svg, HasSubstr("@media(prefers-color-scheme:dark)"));
  EXPECT_THAT(svg, HasSubstr("&lt;script&gt;"));
  EXPECT_THAT(svg, Not(HasSubstr("<script")));
  EXPECT_THAT(svg, HasSubstr("a &lt; b &amp; &quot;c&quot;"));
  EXPECT_EQ(occurrences(svg, "<g"), occurrences(svg, "</g>"));
  EXPECT_EQ(occurrences(svg, "stroke-dasharray"), 2);  // the line and its sample in the legend
}

TEST(FigureAsSvg, InAPageCarriesItsValues) {
  const std::string svg = to_inline_svg(flat_line());
  EXPECT_THAT(svg, HasSubstr("data-series=\"level\" data-ink=\"ink-0\" data-x=\"0 1 2\" data-y=\"0.5 0.5 0.5\""));
  EXPECT_THAT(svg, HasSubstr("data-x-range=\"0 2\" data-y-range=\"0 1\""));
  EXPECT_THAT(svg, Not(HasSubstr("<style")));
  EXPECT_THAT(svg, Not(HasSubstr(">level<")));  // the page has the legend
}

std::string values_of(const std::string& svg) {
  const size_t at = svg.find("data-y=\"") + 8;
  return svg.substr(at, svg.find('"', at) - at);
}

TEST(Figure, ThinsALongLineButKeepsItsSpikes) {
  Series series{"noise"};
  for (int i = 0; i < 100'000; ++i) {
    series.x.push_back(i);
    series.y.push_back(i == 54'321 ? 7.5 : i == 12'345 ? -2.25 : 1 + i % 2);
  }
  const std::string svg = to_inline_svg({.title = "Long", .series = {series}});
  EXPECT_LT(svg.size(), 30'000u);
  EXPECT_THAT(values_of(svg), HasSubstr(" 7.5 "));
  EXPECT_THAT(values_of(svg), HasSubstr(" -2.25 "));
}

TEST(Figure, IsNotPressedFlatByOneWildValue) {
  Series series{"loss"};
  for (int i = 0; i < 100; ++i) {
    series.x.push_back(i);
    series.y.push_back(i == 0 ? 1e6 : 2 - i * 0.01);
  }
  SvgCanvas canvas("test");
  EXPECT_LE(draw_figure(canvas, {.title = "Loss", .series = {series}}, area, false).y.high, 5);
}

TEST(Figure, LeavesOutWhatALogarithmicAxisCannotShow) {
  SvgCanvas canvas("test");
  const Figure figure{.title = "Log", .y = {.log = true}, .series = {{"a", {0, 1, 2}, {0, 0.01, 10}}}};
  const Drawn drawn = draw_figure(canvas, figure, area, false);
  EXPECT_DOUBLE_EQ(drawn.y.low, 0.01);
  EXPECT_DOUBLE_EQ(drawn.y.high, 10);
}

TEST(Figure, SaysWhichSeriesDoesNotFit) {
  const auto draw = [](const Figure& figure) { return error_of([&] { to_inline_svg(figure); }); };
  EXPECT_EQ(draw({.title = "Loss", .series = {{"train", {1, 2}, {1}}}}),
            "figure: series 'train' of 'Loss' has 2 x and 1 y, expected as many");
  EXPECT_THAT(draw({.title = "T", .series = {{"a", {1}, {1}}, {"b", {2}, {1}}}, .stacked = true}),
              HasSubstr("series 'b' of the stack 'T' has other x than the first"));
  EXPECT_THAT(error_of([] { to_svg({}); }), HasSubstr("got no figures"));
}

}  // namespace
}  // namespace lockstep::report
