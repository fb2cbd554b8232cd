// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/report/figure.h"
#include "lockstep/run/run_files.h"

/// The sections of the page. Each is HTML, or empty where the runs hold nothing for it.
namespace lockstep::report {

/// The files of the same names in this folder, which the build embeds. scenes.js uses what stands in page.js.
extern const std::string_view page_css, page_js, scenes_js;

/// A figure of the last line that has it, where the summary has none.
std::optional<double> final_figure(const run::RunData& run, data::Subset subset,
                                   std::optional<double> run::Metrics::*measure);

std::string headline(const run::RunData& run);
std::string comparison(std::span<const run::RunData> runs);
/// Whether runs of one recipe that ended with weights ended with the same ones; empty where none are alike.
std::string verdict(std::span<const run::RunData> runs);
/// Configuration keys, and items of the fingerprint, that are not the same in all runs.
std::string differences(std::span<const run::RunData> runs);

std::string chart_section(std::span<const run::RunData> runs);
std::string time_section(std::span<const run::RunData> runs);
std::string speedup_section(std::span<const run::RunData> runs);

std::string confusion_section(const run::RunData& run);
std::string sample_section(const run::RunData& run);
std::string scene_section(const run::RunData& run);
std::string setup_section(const run::RunData& run);

/// <section> with a heading, or nothing around nothing. `title` is escaped here.
std::string section(const std::string& title, const std::string& body);

/// A row of a table: name, a bar of this share (0 to 1) in a series' colour, the value's words. `name` is HTML.
std::string share_row(const std::string& name, double share, int color, const std::string& words);

/// A square in a series' colour.
std::string swatch(int color, bool dashed = false);

}  // namespace lockstep::report
