// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/base/detail/descriptor.h"
#include "lockstep/pictures/image.h"
#include "lockstep/run/metrics.h"

/// Event files, as TensorBoard reads them: `tensorboard --logdir runs` shows all runs.
namespace lockstep::report {

/// Writes one events file, `FOLDER/events.out.tfevents.TIME.HOST...`. One thread of one process writes (rank 0). Each
/// call is one write(2), so TensorBoard can read along. Every call throws Error when the file can't be written.
class EventWriter {
 public:
  /// Makes the folder and a new file in it, which comes after those that are there. A run that goes on after a
  /// checkpoint gives `purge_step`, the first step that is written anew: TensorBoard then forgets what earlier files
  /// hold from there on. `pace_tag`: what Metrics::examples_per_second is called, as it may count others.
  explicit EventWriter(const std::filesystem::path& folder, std::optional<int64_t> purge_step = {},
                       std::string pace_tag = "examples_per_second");

  const std::filesystem::path& file() const { return file_; }

  /// The figures that a line has, with tags such as `loss/train`, `accuracy/test`, `lr`, `examples_per_second`,
  /// `seconds/forward`. The line's step is the event's; a line without one counts as step 0.
  void metrics(const run::Metrics& line);
  void scalar(std::string_view tag, int64_t step, double value);
  /// Markdown: the resolved configuration, as four blanks before each line make it verbatim (see verbatim).
  void text(std::string_view tag, int64_t step, std::string_view markdown);
  void image(std::string_view tag, int64_t step, const pictures::Image& image);
  /// Of all values that are numbers, in 30 bins of equal width.
  void histogram(std::string_view tag, int64_t step, std::span<const float> values);

 private:
  void write(std::string_view event);

  std::filesystem::path file_;
  Descriptor out_;
  std::string pace_tag_;
};

/// Text that markdown shows as it is.
std::string verbatim(std::string_view text);

}  // namespace lockstep::report
