// SPDX-License-Identifier: Apache-2.0
// The field numbers are those of TensorFlow's event.proto, summary.proto and tensor.proto.
#include "lockstep/report/tensorboard.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/pictures/png.h"
#include "report/tensorboard/protobuf.h"

namespace lockstep::report {
namespace {

constexpr std::string_view file_start = "events.out.tfevents.";

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

Message event_at(int64_t step) {
  Message event;
  event.number(1, wall_time()).integer(2, step);
  return event;
}

// Summary.Value: a tag and one of several kinds of content.
Message value_of(std::string_view tag) {
  Message value;
  value.bytes(1, tag);
  return value;
}

Message scalar_of(std::string_view tag, double number) {
  return value_of(tag).number(2, static_cast<float>(number));
}

std::string summary_event(int64_t step, const Message& value) {
  return event_at(step).message(5, Message().message(1, value)).bytes();
}

// TensorBoard reads a folder's files in the order of their names. So the number in a new one is the time, but more than
// that of any file that is there: a run may be resumed within a second, and clocks may be set back.
int64_t number_of_next_file(const std::filesystem::path& folder) {
  auto next = static_cast<int64_t>(wall_time());
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with(file_start)) continue;
    int64_t number = 0;
    const char* const begin = name.data() + file_start.size();
    if (std::from_chars(begin, name.data() + name.size(), number).ec == std::errc()) next = std::max(next, number + 1);
  }
  return next;
}

std::string host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "localhost";
  return name.data();
}

// HistogramProto
Message histogram_of(std::span<const float> values) {
  constexpr size_t bins = 30;
  double low = std::numeric_limits<double>::infinity(), high = -low, sum = 0, squares = 0, count = 0;
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    low = std::min(low, value);
    high = std::max(high, value);
    sum += value;
    squares += value * value;
    ++count;
  }
  if (count == 0) low = high = 0;
  const double width = high > low ? (high - low) / bins : 1;
  std::array<double, bins> limits{}, counts{};
  for (size_t b = 0; b < bins; ++b) limits[b] = low + width * static_cast<double>(b + 1);
  if (high > low) limits[bins - 1] = high;
  for (const double value : values)
    if (std::isfinite(value)) ++counts[std::min(bins - 1, static_cast<size_t>((value - low) / width))];
  Message histogram;
  histogram.number(1, low).number(2, high).number(3, count).number(4, sum).number(5, squares);
  return histogram.packed(6, limits).packed(7, counts);
}

}  // namespace

EventWriter::EventWriter(const std::filesystem::path& folder, std::optional<int64_t> purge_step, std::string pace_tag)
    : pace_tag_(std::move(pace_tag)) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  require(!error, "EventWriter", folder, ": ", error.message());
  file_ = folder / lockstep::text(file_start, number_of_next_file(folder), ".", host_name(), ".", getpid());
  out_ = Descriptor(open(file_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666));
  require(static_cast<bool>(out_), "EventWriter", file_, ": ", std::strerror(errno));
  write(Message().number(1, wall_time()).bytes(3, "brain.Event:2").bytes());
  // SessionLog with status START
  if (purge_step) write(event_at(*purge_step).message(7, Message().integer(1, 1)).bytes());
}

void EventWriter::write(std::string_view event) {
  require(write_all(out_.get(), tf_record(event)), "EventWriter", file_, ": ", std::strerror(errno));
}

void EventWriter::metrics(const run::Metrics& line) {
  Message summary;
  const std::string subset = std::string("/") + to_string(line.subset);
  const auto add = [&](const std::string& tag, const std::optional<double>& value) {
    if (value) summary.message(1, scalar_of(tag, *value));
  };
  add("loss" + subset, line.loss);
  add("accuracy" + subset, line.accuracy);
  add("mean IoU" + subset, line.mean_iou);
  add("epoch" + subset, line.epoch);
  add("lr", line.lr);
  add(pace_tag_ + subset, line.examples_per_second);
  add("gradient_norm", line.gradient_norm);
  for (const auto& [name, member] : run::phase_members)
    if (line.phases) add(std::string("seconds/") + name, *line.phases.*member);
  write(event_at(line.step.value_or(0)).message(5, summary).bytes());
}

void EventWriter::scalar(std::string_view tag, int64_t step, double value) {
  write(summary_event(step, scalar_of(tag, value)));
}

void EventWriter::text(std::string_view tag, int64_t step, std::string_view markdown) {
  constexpr int string_type = 7;
  const Message shape = Message().message(2, Message().integer(1, 1));
  const Message tensor = Message().integer(1, string_type).message(2, shape).bytes(8, markdown);
  const Message metadata = Message().message(1, Message().bytes(1, "text"));
  write(summary_event(step, value_of(tag).message(8, tensor).message(9, metadata)));
}

void EventWriter::image(std::string_view tag, int64_t step, const pictures::Image& image) {
  Message picture;
  picture.integer(1, image.height)
      .integer(2, image.width)
      .integer(3, image.channels)
      .bytes(4, pictures::encode_png(image));
  write(summary_event(step, value_of(tag).message(4, picture)));
}

void EventWriter::histogram(std::string_view tag, int64_t step, std::span<const float> values) {
  write(summary_event(step, value_of(tag).message(5, histogram_of(values))));
}

std::string verbatim(std::string_view text) {
  std::string out;
  for (bool more = !text.empty(); more;) {
    const size_t end = text.find('\n');
    out.append("    ").append(text.substr(0, end)).push_back('\n');
    more = end != std::string_view::npos && end + 1 < text.size();
    if (more) text.remove_prefix(end + 1);
  }
  return out;
}

}  // namespace lockstep::report
