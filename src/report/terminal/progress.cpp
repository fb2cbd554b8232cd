// SPDX-License-Identifier: Apache-2.0
#include "lockstep/report/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <vector>

#include "lockstep/base/detail/descriptor.h"
#include "lockstep/base/detail/guarded.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/report/format.h"
#include "report/terminal/progress_parts.h"

namespace lockstep::report {
namespace {

constexpr double window_seconds = 3;
// Back to the start of the line; what was there from here on is erased after the new text: nothing flickers.
constexpr const char *line_start = "\r", *erase_rest = "\033[K";

bool redraws_lines(int fd) {
  const char* const terminal = std::getenv("TERM");
  return isatty(fd) == 1 && terminal != nullptr && std::string_view(terminal) != "dumb" && *terminal != '\0';
}

// By the environment, as the process may not have called setlocale.
bool shows_unicode() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* const value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    const std::string_view locale(value);
    return locale.find("UTF-8") != std::string_view::npos || locale.find("utf8") != std::string_view::npos ||
           locale.find("utf-8") != std::string_view::npos;
  }
  return false;
}

// One column stays free: a full line would wrap on some terminals.
int width_of(int fd) {
  winsize size{};
  if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col - 1;
  return 79;
}

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

ProgressStyle resolved(const ProgressOptions& options) {
  if (options.style != ProgressStyle::automatic) return options.style;
  return redraws_lines(options.fd) ? ProgressStyle::bar : ProgressStyle::lines;
}

}  // namespace

// Shared by the run's thread and whichever threads log.
class Progress::Display {
 public:
  explicit Display(ProgressOptions options)
      : options_(std::move(options)), style_(resolved(options_)), unicode_(shows_unicode()) {
    if (!options_.now) options_.now = steady_seconds;
    if (style_ == ProgressStyle::bar && isatty(STDERR_FILENO) == 1)
      log_sink_.emplace([this](LogLevel, std::string_view lines) { above(STDERR_FILENO, lines); });
  }
  ~Display() {
    log_sink_.reset();
    clear();
  }

  void update(const Position& position) {
    if (style_ == ProgressStyle::quiet) return;
    const Lock lock(mutex_);
    const double now = options_.now();
    pace_.add(now, position);
    const bool lines = style_ == ProgressStyle::lines;
    const double interval =
        std::chrono::duration<double>(lines ? options_.line_interval : options_.bar_interval).count();
    // A line says nothing before there is a pace; a bar is there at once.
    if (!drawn_at_ && lines) drawn_at_ = now;
    if (drawn_at_ && now - *drawn_at_ < interval) return;
    drawn_at_ = now;
    if (lines) return write_all_or_drop(options_.fd, plain(position, now) + "\n");
    bar_ = progress_bar(position, pace_.examples_per_second(), pace_.seconds_left(now), options_.unit,
                        width_of(options_.fd), unicode_);
    draw();
  }

  void line(std::string_view words) {
    if (style_ != ProgressStyle::quiet) above(options_.fd, std::string(words) + "\n");
  }

  void clear() {
    const Lock lock(mutex_);
    if (!bar_.empty()) write_all_or_drop(options_.fd, std::string(line_start) + erase_rest);
    bar_.clear();
    drawn_at_.reset();
  }

 private:
  static void write_all_or_drop(int fd, const std::string& bytes) { static_cast<void>(write_all(fd, bytes)); }

  void draw() LOCKSTEP_REQUIRES(mutex_) { write_all_or_drop(options_.fd, line_start + bar_ + erase_rest); }

  void above(int fd, std::string_view lines) {
    const Lock lock(mutex_);
    if (bar_.empty()) return write_all_or_drop(fd, std::string(lines));
    write_all_or_drop(fd, text(line_start, erase_rest, lines));
    draw();
  }

  std::string plain(const Position& position, double now) const LOCKSTEP_REQUIRES(mutex_) {
    std::vector<std::string> parts{epoch_of(position), "step " + step_of(position), figure_of("loss", position.loss),
                                   figure_of("accuracy", position.accuracy)};
    if (const auto pace = pace_.examples_per_second())
      parts.push_back(text(short_number(*pace), " ", options_.unit, "/s"));
    if (const auto left = pace_.seconds_left(now)) parts.push_back(clock(*left) + " left");
    std::string line;
    for (const auto& part : parts)
      if (!part.empty()) line += (line.empty() ? "" : ", ") + part;
    return line;
  }

  ProgressOptions options_;
  const ProgressStyle style_;
  const bool unicode_;
  Mutex mutex_;
  Pace pace_ LOCKSTEP_GUARDED_BY(mutex_);
  std::string bar_ LOCKSTEP_GUARDED_BY(mutex_);  // as it stands on the terminal
  std::optional<double> drawn_at_ LOCKSTEP_GUARDED_BY(mutex_);
  std::optional<ScopedLogSink> log_sink_;
};

void Pace::add(double now, const Position& position) {
  const Moment moment{now, position.step, position.examples};
  steps_ = position.steps;
  if (!first_ || moment.step < first_->step) first_ = window_ = next_window_ = moment;
  last_ = moment;
  // Two windows, one half a length behind the other: the pace is always of 1 to 2 lengths, and nothing jumps.
  if (now - next_window_->time < window_seconds) return;
  window_ = next_window_;
  next_window_ = moment;
}

std::optional<double> Pace::examples_per_second() const {
  if (!last_ || last_->time <= window_->time || last_->examples <= window_->examples) return std::nullopt;
  return static_cast<double>(last_->examples - window_->examples) / (last_->time - window_->time);
}

std::optional<double> Pace::seconds_left(double now) const {
  if (!last_ || steps_ <= 0 || last_->step <= first_->step) return std::nullopt;
  const double per_step = (last_->time - first_->time) / static_cast<double>(last_->step - first_->step);
  return std::max(0., static_cast<double>(steps_ - last_->step) * per_step - (now - last_->time));
}

Progress::Progress(ProgressOptions options) : display_(std::make_unique<Display>(std::move(options))) {}
Progress::Progress(Progress&&) noexcept = default;
Progress& Progress::operator=(Progress&&) noexcept = default;
Progress::~Progress() = default;

void Progress::update(const Position& position) {
  display_->update(position);
}
void Progress::line(std::string_view words) {
  display_->line(words);
}
void Progress::finish() {
  display_->clear();
}

}  // namespace lockstep::report
