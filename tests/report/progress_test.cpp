// SPDX-License-Identifier: Apache-2.0
// Progress on a terminal (a pty, with a small screen that obeys what is written) and on a pipe.
#include "lockstep/report/progress.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <unistd.h>

#include <csignal>

#include "lockstep/report/format.h"
#include "report/terminal/progress_parts.h"

namespace lockstep::report {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Le;
using testing::Not;
using testing::SizeIs;

// What is left of some bytes on a terminal. A line that is longer than the screen wraps, as a terminal does.
std::vector<std::string> screen_of(const std::string& bytes, size_t width) {
  std::vector<std::vector<std::string>> cells(1);
  size_t row = 0, column = 0;
  for (size_t at = 0; at < bytes.size();) {
    if (bytes[at] == '\r') {
      column = 0;
    } else if (bytes[at] == '\n') {
      if (++row == cells.size()) cells.emplace_back();
    } else if (bytes.compare(at, 3, "\033[K") == 0) {
      cells[row].resize(std::min(column, cells[row].size()));
      at += 2;
    } else {
      size_t size = 1;
      while (at + size < bytes.size() && (static_cast<uint8_t>(bytes[at + size]) & 0xc0) == 0x80) ++size;
      if (column == width) {
        column = 0;
        if (++row == cells.size()) cells.emplace_back();
      }
      cells[row].resize(std::max(cells[row].size(), column + 1), " ");
      cells[row][column++] = bytes.substr(at, size);
      at += size - 1;
    }
    ++at;
  }
  std::vector<std::string> lines;
  for (const auto& line : cells) {
    auto& text = lines.emplace_back();
    for (const auto& cell : line) text += cell;
  }
  while (!lines.empty() && lines.back().empty()) lines.pop_back();
  return lines;
}

std::string drain(int fd) {
  fcntl(fd, F_SETFL, O_NONBLOCK);
  std::string all;
  char bytes[4096];
  for (ssize_t count; (count = read(fd, bytes, sizeof bytes)) > 0;) all.append(bytes, count);
  return all;
}

// Two ends of a terminal or of a pipe.
struct Ends {
  int read = -1;
  int write = -1;
  Ends() = default;
  Ends(const Ends&) = delete;
  Ends& operator=(const Ends&) = delete;
  ~Ends() {
    close(read);
    close(write);
  }
};

struct Terminal : Ends {
  explicit Terminal(int columns) : size{24, static_cast<uint16_t>(columns), 0, 0} {
    EXPECT_EQ(openpty(&read, &write, nullptr, nullptr, &size), 0);
  }
  std::vector<std::string> screen() {
    written += drain(read);
    return screen_of(written, size.ws_col);
  }
  winsize size;
  std::string written;
};

struct Pipe : Ends {
  Pipe() { EXPECT_EQ(pipe(&read), 0); }  // fills read and write
};
static_assert(offsetof(Ends, write) == sizeof(int));

class ProgressTest : public testing::Test {
 protected:
  void SetUp() override {
    setenv("TERM", "xterm", 1);
    setenv("LC_ALL", "C.UTF-8", 1);
  }

  Progress on(int fd, ProgressStyle style = ProgressStyle::automatic) {
    return Progress({.style = style, .fd = fd, .now = [this] { return now; }});
  }
  // The middle of epoch 3 of 10, of a run that does 100 steps and 25,600 images a second.
  Position at(int64_t step) {
    now = static_cast<double>(step) / 100;
    return {.step = step,
            .steps = 2350,
            .steps_per_epoch = 235,
            .examples = step * 256,
            .loss = 0.4123,
            .accuracy = 0.8534};
  }

  double now = 0;
};

TEST_F(ProgressTest, DrawsOneLineOnATerminal) {
  Terminal terminal(100);
  Progress progress = on(terminal.write);
  for (int step = 0; step <= 470; ++step) progress.update(at(step));
  progress.update(at(587));
  EXPECT_THAT(terminal.screen(),
              ElementsAre("epoch 3/10  ━━━━━━━━━━━────────────  117/235  loss 0.412  accuracy 0.853  "
                          "25.6k images/s  0:18 left"));
  progress.finish();
  EXPECT_THAT(terminal.screen(), IsEmpty());
}

TEST_F(ProgressTest, FitsAnyTerminal) {
  for (int width = 1; width <= 130; ++width) {
    Terminal terminal(width);
    Progress progress = on(terminal.write);
    for (const int step : {0, 1, 234, 235, 2350}) progress.update(at(step));
    const auto lines = terminal.screen();
    EXPECT_THAT(lines, SizeIs(Le(1))) << width;
    if (width > 10) {
      ASSERT_THAT(lines, SizeIs(1)) << width;
      EXPECT_THAT(lines[0], HasSubstr("235/235")) << width;
      EXPECT_LT(columns_of(lines[0]), static_cast<size_t>(width));
    }
  }
}

TEST_F(ProgressTest, GivesUpTheLeastUsefulFirst) {
  const auto bar = [&](int width) { return progress_bar(at(587), 25600., 17.6, "images", width, false); };
  EXPECT_EQ(bar(99),
            "epoch 3/10  ###########------------  117/235  loss 0.412  accuracy 0.853  25.6k images/s  0:18 left");
  EXPECT_EQ(bar(70), "epoch 3/10  ####------  117/235  loss 0.412  accuracy 0.853  0:18 left");
  EXPECT_EQ(bar(60), "epoch 3/10  #####------  117/235  loss 0.412  accuracy 0.853");
  EXPECT_EQ(bar(50), "epoch 3/10  117/235  loss 0.412  accuracy 0.853");
  EXPECT_EQ(bar(33), "epoch 3/10  117/235  loss 0.412");
  EXPECT_EQ(bar(20), "epoch 3/10  117/235");
  EXPECT_EQ(bar(10), "117/235");
  EXPECT_EQ(bar(3), "");
}

TEST_F(ProgressTest, DrawsNoMoreOftenThanItsInterval) {
  Terminal terminal(80);
  Progress progress = on(terminal.write);
  for (int step = 1; step <= 100; ++step) progress.update(at(step));  // one second
  terminal.screen();
  EXPECT_THAT(std::count(terminal.written.begin(), terminal.written.end(), '\r'), AllOf(testing::Ge(9), Le(11)));
  // Nothing is erased before something new stands there.
  EXPECT_THAT(terminal.written, Not(HasSubstr("\r\033[K")));
}

TEST_F(ProgressTest, KeepsLinesAboveTheBar) {
  Terminal terminal(60);
  Progress progress = on(terminal.write);
  progress.update(at(235));
  progress.line("epoch 1: test accuracy 0.71");
  progress.update(at(470));
  progress.line("epoch 2: test accuracy 0.78");
  auto lines = terminal.screen();
  ASSERT_THAT(lines, SizeIs(3));
  EXPECT_EQ(lines[0], "epoch 1: test accuracy 0.71");
  EXPECT_EQ(lines[1], "epoch 2: test accuracy 0.78");
  EXPECT_THAT(lines[2], HasSubstr("epoch 2/10"));
  progress.finish();
  EXPECT_THAT(terminal.screen(), SizeIs(2));
}

TEST_F(ProgressTest, UsesPlainCharactersWhereTheTerminalHasNoOthers) {
  setenv("LC_ALL", "C", 1);
  Terminal terminal(100);
  Progress progress = on(terminal.write);
  progress.update(at(587));
  EXPECT_THAT(terminal.screen(), ElementsAre(HasSubstr("  ######")));
}

TEST_F(ProgressTest, WritesAPlainLineEveryFewSecondsToAPipe) {
  Pipe pipe;
  Progress progress = on(pipe.write);
  for (int step = 0; step <= 1100; ++step) progress.update(at(step));
  progress.line("epoch 5: done");
  progress.finish();
  EXPECT_EQ(drain(pipe.read),
            "epoch 3/10, step 30/235, loss 0.412, accuracy 0.853, 25.6k images/s, 0:19 left\n"
            "epoch 5/10, step 60/235, loss 0.412, accuracy 0.853, 25.6k images/s, 0:14 left\n"
            "epoch 5: done\n");
}

TEST_F(ProgressTest, WritesPlainLinesToATerminalThatCannotRedraw) {
  setenv("TERM", "dumb", 1);
  Terminal terminal(80);
  Progress progress = on(terminal.write);
  for (int step = 0; step <= 600; ++step) progress.update(at(step));
  EXPECT_THAT(terminal.screen(), SizeIs(1));
  EXPECT_THAT(terminal.written, Not(HasSubstr("\033")));
}

TEST_F(ProgressTest, SaysNothingWhenQuiet) {
  Terminal terminal(80);
  Progress progress = on(terminal.write, ProgressStyle::quiet);
  for (int step = 0; step <= 1000; ++step) progress.update(at(step));
  progress.line("done");
  progress.finish();
  EXPECT_THAT(terminal.screen(), IsEmpty());
  EXPECT_EQ(terminal.written, "");
}

TEST_F(ProgressTest, OfARunWithoutAnEndCountsItsSteps) {
  const Position position{.step = 7, .examples = 70};
  EXPECT_EQ(progress_bar(position, std::nullopt, std::nullopt, "images", 80, false), "7");
  EXPECT_EQ(progress_bar({.step = 7, .steps = 10}, std::nullopt, std::nullopt, "points", 80, false),
            "######################----------  7/10");
}

TEST_F(ProgressTest, OfAResumedRunCountsOnlyItsOwnTime) {
  Pipe pipe;
  Progress progress = on(pipe.write);
  progress.update({.step = 2000, .steps = 2350});
  now = 6;
  progress.update({.step = 2050, .steps = 2350, .examples = 600});
  EXPECT_EQ(drain(pipe.read), "step 2050/2350, 100 images/s, 0:36 left\n");
}

TEST_F(ProgressTest, DoesNotEndARunWhoseOutputIsClosed) {
  std::signal(SIGPIPE, SIG_IGN);
  Pipe pipe;
  Progress progress = on(pipe.write, ProgressStyle::bar);
  close(std::exchange(pipe.read, -1));
  progress.update(at(1));
  progress.line("still here");
  progress.finish();
}

}  // namespace
}  // namespace lockstep::report
