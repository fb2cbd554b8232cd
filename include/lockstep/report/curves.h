// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "lockstep/report/figure.h"
#include "lockstep/run/run_files.h"

/// The charts of runs. One run: a colour for train, one for test. Several: a colour a run, its train line dashed. The x
/// axis counts epochs where all lines know theirs, else steps. A chart of what no run has measured has no series.
namespace lockstep::report {

Figure loss_figure(std::span<const run::RunData> runs);
Figure accuracy_figure(std::span<const run::RunData> runs);
Figure learning_rate_figure(std::span<const run::RunData> runs);
Figure throughput_figure(std::span<const run::RunData> runs);
Figure gradient_norm_figure(std::span<const run::RunData> runs);

/// Where a step's time went in the course of one run, stacked, in milliseconds.
Figure phases_figure(const run::RunData& run);

/// Speedup by devices, a line for each global batch size, and the dashed line of the ideal.
Figure speedup_figure(std::span<const run::SpeedupRow> rows);

/// curves.svg and curves.png of a run's folder: loss and accuracy, side by side. Both are replaced whole, so a viewer
/// that is open can reload them at any moment. Throws Error when they can't be written.
void write_curves(const run::Folder& folder, std::span<const run::Metrics> metrics);
/// The same of any runs, as STEM.svg and STEM.png.
void write_curves(const std::filesystem::path& stem, std::span<const run::RunData> runs);

}  // namespace lockstep::report
