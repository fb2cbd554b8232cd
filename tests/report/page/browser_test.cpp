// SPDX-License-Identifier: Apache-2.0
// The page as a browser has it: Chromium without a window, at the widths of a phone and of a desk, light and dark.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <optional>

#include "lockstep/base/detail/file.h"
#include "lockstep/pictures/png.h"
#include "lockstep/report/html.h"
#include "report/command_output.h"
#include "report/draw/palette.h"
#include "report/example_runs.h"
#include "support/temporary_folder.h"

namespace lockstep::report {
namespace {

using test::TemporaryFolder;

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// A script for the page around the report: loads it at a width, looks at it, and leaves what it saw as JSON.
constexpr const char* probe = R"html(<!doctype html><body style="margin:0">
<iframe id="page" src="report.html" style="border:0;width:WIDTHpx;height:900px"></iframe><pre id="seen"></pre><script>
onload = () => {
  const view = document.getElementById('page').contentWindow, page = view.document, seen = {};
  const all = what => [...page.querySelectorAll(what)];
  seen.title = page.title;
  seen.width = page.documentElement.clientWidth;
  seen.scrollWidth = page.documentElement.scrollWidth;
  seen.outside = all('body *').filter(e => !e.closest('.scroll,pre,svg') && e.getBoundingClientRect().right > seen.width + 1)
    .map(e => e.tagName + '.' + e.className);
  seen.charts = all('figure h3').map(e => e.textContent);
  seen.smallestText = Math.min(...all('svg text').map(e => +e.getAttribute('font-size') * e.ownerSVGElement.clientWidth
    / e.ownerSVGElement.viewBox.baseVal.width));
  seen.images = all('img').map(e => [e.naturalWidth, e.alt]);
  seen.columns = new Set(all('figure.chart').map(e => Math.round(e.getBoundingClientRect().left))).size;
  seen.scripts = all('script').length;
  const svg = page.querySelector('svg[data-plot]');
  if (svg) {
    const box = svg.getBoundingClientRect();
    svg.dispatchEvent(new view.PointerEvent('pointermove', {clientX: box.right - 2, clientY: box.top + 40}));
    const tip = svg.parentNode.querySelector('.tip');
    seen.tip = [...tip.children].map(e => e.textContent);
    const place = tip.getBoundingClientRect(), card = svg.parentNode.getBoundingClientRect();
    seen.tipInside = place.left >= card.left && place.right <= card.right;
    svg.dispatchEvent(new view.PointerEvent('pointerleave'));
    seen.tipHidden = tip.hidden;
    svg.dispatchEvent(new view.KeyboardEvent('keydown', {key: 'Home', cancelable: true}));
    seen.firstTip = tip.hidden ? '' : tip.children[0].textContent;
  }
  const shownLines = () => all('figure.chart g[data-group]').filter(e => view.getComputedStyle(e).display != 'none').length;
  const button = page.querySelector('.runs button');
  if (button) {
    seen.lines = [shownLines()];
    for (let i = 0; i < 2; ++i) { button.click(); seen.lines.push(shownLines(), button.getAttribute('aria-pressed')); }
  }
  document.getElementById('seen').textContent = JSON.stringify(seen);
};
</script></body>)html";

// The same for scenes. A drawing is read in the task that made it: the browser clears it when it has been shown.
constexpr const char* scene_probe = R"html(<!doctype html><body style="margin:0">
<iframe id="page" src="report.html" style="border:0;width:WIDTHpx;height:900px"></iframe><pre id="seen"></pre><script>
onload = () => {
  const view = document.getElementById('page').contentWindow, page = view.document, seen = {};
  const all = what => [...page.querySelectorAll(what)];
  seen.scrollWidth = page.documentElement.scrollWidth;
  seen.pictures = all('.scenes img').filter(e => e.offsetParent).length;
  seen.legend = all('.scenes .legend li').map(e => e.textContent.trim());
  const canvas = page.querySelector('.scenes canvas');
  seen.canvas = !!canvas;
  if (canvas) {
    const gl = canvas.getContext('webgl'), hex = v => v.toString(16).padStart(2, '0');
    const look = () => {
      const pixels = new Uint8Array(4 * canvas.width * canvas.height), colours = {};
      gl.readPixels(0, 0, canvas.width, canvas.height, gl.RGBA, gl.UNSIGNED_BYTE, pixels);
      for (let i = 0; i < pixels.length; i += 4) {
        const name = [...pixels.subarray(i, i + 4)].map(hex).join('');
        colours[name] = (colours[name] || 0) + 1;
      }
      return colours;
    };
    const press = name => { all('.choice button').find(e => e.textContent === name).click(); return look(); };
    const at = (type, id, x, y) => {
      canvas.dispatchEvent(new view.PointerEvent(type, {pointerId: id, clientX: x, clientY: y}));
      return look();
    };
    canvas.setPointerCapture = () => {};  // these pointers are not the browser's
    seen.size = [canvas.clientWidth, canvas.clientHeight];
    seen.choices = all('.choice').map(e => [...e.children].map(b => b.textContent));
    seen.truth = press('truth');
    seen.prediction = press('prediction');
    seen.pressed = all('.choice button[aria-pressed=true]').map(e => e.textContent);
    seen.colours = Object.keys(press('colour')).length;
    seen.other = press('Scene 7');
    seen.before = press('truth');
    at('pointerdown', 1, 100, 100);
    seen.turned = at('pointermove', 1, 180, 100);
    at('pointerdown', 2, 200, 100);
    seen.pinched = at('pointermove', 2, 300, 100);
    at('pointerup', 1, 0, 0);
    at('pointerup', 2, 0, 0);
    canvas.dispatchEvent(new view.MouseEvent('dblclick'));
    seen.again = look();
    seen.left = at('pointermove', 1, 5, 5);
    const turned = new view.WheelEvent('wheel', {deltaY: -300, cancelable: true});
    canvas.dispatchEvent(turned);
    seen.wheel = look();
    seen.scrolls = !turned.defaultPrevented;
    canvas.dispatchEvent(new view.MouseEvent('dblclick'));
    canvas.dispatchEvent(new view.KeyboardEvent('keydown', {key: 'ArrowLeft', cancelable: true}));
    seen.key = look();
    canvas.dispatchEvent(new view.MouseEvent('dblclick'));
    const range = page.querySelector('.scenes input');
    range.value = 1;
    range.dispatchEvent(new view.Event('input'));
    seen.whole = look();
  }
  document.getElementById('seen').textContent = JSON.stringify(seen);
};
</script></body>)html";

class Browser : public testing::Test {
 protected:
  void SetUp() override {
    program = output_of("command -v chromium || command -v chromium-browser || command -v google-chrome").text;
    while (!program.empty() && program.back() == '\n') program.pop_back();
    if (program.empty()) GTEST_SKIP() << "no chromium in PATH (./dev setup installs it where apt has it)";
  }

  std::string start(const std::string& arguments, const std::string& file) const {
    return output_of("timeout 100 '" + program + "' --headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage" +
                     " --no-first-run --hide-scrollbars --enable-logging=stderr --allow-file-access-from-files" +
                     " --user-data-dir='" + (folder / "profile").string() + "' " + arguments + " 'file://" +
                     (folder / file).string() + "' 2>'" + (folder / "log").string() + "'")
        .text;
  }
  // What the page's script, or the policy against foreign ones, complains of.
  std::vector<std::string> complaints() const {
    std::vector<std::string> lines;
    std::istringstream log(read_file(folder / "log"));
    for (std::string line; std::getline(log, line);)
      if (line.find("CONSOLE") != std::string::npos) lines.push_back(line);
    return lines;
  }

  json look_at(std::span<const run::RunData> runs, int width, std::string page = probe, const std::string& flags = "") {
    write_file(folder / "report.html", report_page(runs));
    page.replace(page.find("WIDTH"), 5, std::to_string(width));
    write_file(folder / "probe.html", page);
    const std::string dom =
        start(flags + " --dump-dom --virtual-time-budget=10000 --window-size=1600,1000", "probe.html");
    const std::string mark = "<pre id=\"seen\">";
    const size_t begin = dom.find(mark);
    if (begin == std::string::npos) return {};
    std::string seen = dom.substr(begin + mark.size(), dom.find("</pre>", begin) - begin - mark.size());
    for (const auto& [coded, plain] : {std::pair{"&lt;", "<"}, {"&gt;", ">"}, {"&amp;", "&"}})
      for (size_t at = 0; (at = seen.find(coded, at)) != std::string::npos; ++at)
        seen.replace(at, std::string_view(coded).size(), plain);
    return json::parse(seen, nullptr, false);
  }

  pictures::Image photograph(std::span<const run::RunData> runs, int width, bool dark) {
    write_file(folder / "report.html", report_page(runs));
    start("--screenshot='" + (folder / "shot.png").string() + "' --window-size=" + std::to_string(width) + ",900" +
              (dark ? " --force-dark-mode" : ""),
          "report.html");
    return pictures::decode_png(read_file(folder / "shot.png"), "shot.png");
  }

  std::string program;
  const TemporaryFolder folder;
};

std::vector<run::RunData> three_runs() {
  return {example_run("lenet"), example_run("<script>document.title = 'taken over'</script>", "2 processes x 1 thread"),
          example_run("a-long-name-without-any-place-to-break-it-that-goes-on-and-on-and-on", "1 thread", 'b')};
}

TEST_F(Browser, FitsOneRunOnAPhone) {
  const run::RunData run = example_run("lenet");
  const json seen = look_at({&run, 1}, 375);
  EXPECT_EQ(seen["title"], "lenet - Lockstep");
  EXPECT_EQ(seen["scrollWidth"], 375);
  EXPECT_EQ(seen["outside"], json::array());
  EXPECT_EQ(seen["columns"], 1);
  EXPECT_GE(seen["smallestText"], 8.5);
  EXPECT_EQ(seen["charts"],
            json({"Loss", "Accuracy", "Learning rate", "Throughput", "Gradient norm", "Time per step"}));
  EXPECT_EQ(seen["images"].size(), 12u);
  EXPECT_EQ(seen["images"][3], json({28, "dress"}));
  EXPECT_THAT(complaints(), IsEmpty());
}

TEST_F(Browser, FitsSeveralRunsOnAPhoneWhateverTheyAreCalled) {
  const auto runs = three_runs();
  const json seen = look_at(runs, 375);
  EXPECT_EQ(seen["title"], "3 runs compared - Lockstep");
  EXPECT_EQ(seen["scrollWidth"], 375);
  EXPECT_EQ(seen["outside"], json::array());
  EXPECT_EQ(seen["scripts"], 1);
  EXPECT_THAT(complaints(), IsEmpty());
}

TEST_F(Browser, UsesTheWidthOfADesk) {
  const run::RunData run = example_run("lenet");
  const json seen = look_at({&run, 1}, 1280);
  EXPECT_EQ(seen["scrollWidth"], 1280);
  EXPECT_EQ(seen["outside"], json::array());
  EXPECT_EQ(seen["columns"], 3);
  EXPECT_GE(seen["smallestText"], 10);
}

TEST_F(Browser, ShowsTheValuesUnderThePointer) {
  const run::RunData run = example_run("lenet");
  for (const int width : {375, 1280}) {
    const json seen = look_at({&run, 1}, width);
    ASSERT_EQ(seen["tip"].size(), 3u) << seen;
    EXPECT_EQ(seen["tip"][0], "epoch 10");
    EXPECT_THAT(seen["tip"][1].get<std::string>(), testing::MatchesRegex("train 0\\.3[0-9]+"));
    EXPECT_THAT(seen["tip"][2].get<std::string>(), testing::MatchesRegex("test 0\\.4[0-9]+"));
    EXPECT_EQ(seen["tipInside"], true);
    EXPECT_EQ(seen["tipHidden"], true);
    EXPECT_EQ(seen["firstTip"], "epoch 0.2");  // by the keyboard
  }
}

TEST_F(Browser, HidesARunAtAClickAndShowsItAtTheNext) {
  // Loss and accuracy have two lines a run, three other charts one.
  EXPECT_EQ(look_at(three_runs(), 1280)["lines"], json({21, 14, "false", 21, "true"}));
}

TEST_F(Browser, PaintsLightAndDark) {
  const run::RunData run = example_run("lenet");
  for (const int width : {500, 1280})
    for (const bool dark : {false, true}) {
      const pictures::Image shot = photograph({&run, 1}, width, dark);
      const auto at = [&](size_t i) { return std::array{shot.pixels[i], shot.pixels[i + 1], shot.pixels[i + 2]}; };
      const auto page = at((static_cast<size_t>(shot.width) * 5 + 5) * shot.channels);
      EXPECT_THAT(page, dark ? ElementsAre(0x0d, 0x11, 0x17) : ElementsAre(0xf5, 0xf6, 0xf8)) << width;
      const Color line = color_of({Ink::series, 0}, dark ? Theme::dark : Theme::light);
      int painted = 0;
      for (size_t i = 0; i + 3 < shot.pixels.size(); i += shot.channels)
        painted += at(i) == std::array{line.red, line.green, line.blue};
      EXPECT_GT(painted, 100) << width << (dark ? " dark" : " light");
    }
}

constexpr const char *kFloor = "a6cee3ff", *kBox = "b2b2b2ff", *kUnknown = "404040ff", *kNothing = "00000000";

int painted(const json& colours, const char* colour) {
  return colours.value(colour, 0);
}
int painted(const json& colours) {
  int sum = 0;
  for (const auto& [colour, count] : colours.items()) sum += colour == kNothing ? 0 : count.get<int>();
  return sum;
}

TEST_F(Browser, ShowsScenesThatCanBeTurned) {
  const run::RunData run = example_cloud_run("minkunet14a");
  for (const int width : {375, 1280}) {
    const json seen = look_at({&run, 1}, width, scene_probe, "--enable-unsafe-swiftshader");
    ASSERT_EQ(seen["canvas"], true) << seen;
    EXPECT_EQ(seen["scrollWidth"], width);
    EXPECT_GT(seen["size"][0], width * 0.8);
    EXPECT_EQ(seen["pictures"], 0);
    EXPECT_EQ(seen["legend"], json({"floor", "<b>box</b>", "unknown"}));
    EXPECT_EQ(seen["choices"], json({{"Scene 0", "Scene 7"}, {"truth", "prediction", "colour"}}));
    EXPECT_EQ(seen["pressed"], json({"Scene 0", "prediction"}));
    // Of the box one side is taken for floor, and nothing is predicted to be unknown.
    EXPECT_GT(painted(seen["truth"], kFloor), 1000);
    EXPECT_GT(painted(seen["prediction"], kBox), 300);
    EXPECT_GT(painted(seen["truth"], kBox), painted(seen["prediction"], kBox) + 100);
    EXPECT_GT(painted(seen["truth"], kUnknown), 20);
    EXPECT_EQ(painted(seen["prediction"], kUnknown), 0);
    EXPECT_EQ(painted(seen["truth"]), painted(seen["prediction"]));
    EXPECT_GT(painted(seen["truth"], kNothing), 1000);  // the page's own colour shows there, light or dark
    EXPECT_GT(seen["colours"], 100);
    EXPECT_EQ(seen["other"].size(), seen["colours"]);
    EXPECT_EQ(seen["before"], seen["truth"]);
    EXPECT_NE(seen["turned"], seen["before"]);
    EXPECT_GT(painted(seen["pinched"]), painted(seen["turned"]));
    EXPECT_EQ(seen["again"], seen["before"]);
    EXPECT_EQ(seen["left"], seen["before"]);  // a finger that was lifted turns nothing
    EXPECT_GT(painted(seen["wheel"]), painted(seen["before"]));
    EXPECT_EQ(seen["scrolls"], false);
    EXPECT_NE(seen["key"], seen["before"]);
    EXPECT_GT(painted(seen["whole"], kBox), painted(seen["before"], kBox));          // a voxel above all others
    EXPECT_THAT(complaints(), testing::Each(HasSubstr("stall due to ReadPixels")));  // which is this test's
  }
}

TEST_F(Browser, KeepsThePicturesOfScenesWhereWebGlIsMissing) {
  const run::RunData run = example_cloud_run("minkunet14a");
  const json seen = look_at({&run, 1}, 375, scene_probe, "--disable-3d-apis");
  EXPECT_EQ(seen["canvas"], false) << seen;
  EXPECT_EQ(seen["pictures"], 4);
  EXPECT_EQ(seen["scrollWidth"], 375);
}

TEST_F(Browser, RunsNoScriptButThePagesOwn) {
  const run::RunData run = example_run("lenet");
  std::string page = report_page({&run, 1});
  page.insert(page.find("</main>"),
              "<script>document.title = 'taken over'</script><img src=x onerror=\"document.title='y'\">");
  write_file(folder / "report.html", page);
  EXPECT_THAT(start("--dump-dom --virtual-time-budget=3000", "report.html"),
              HasSubstr("<title>lenet - Lockstep</title>"));
  EXPECT_THAT(complaints(), Not(IsEmpty()));  // the browser says what it refused
}

}  // namespace
}  // namespace lockstep::report
