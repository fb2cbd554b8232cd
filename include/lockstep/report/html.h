// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include "lockstep/run/run_files.h"

namespace lockstep::report {

/// One self-contained HTML page on some runs: figures, curves, where the time went, confusion matrices, samples,
/// configuration. Nothing is fetched from anywhere (its content security policy says so to the browser), and it can be
/// read without scripts; they add tooltips and hide runs. Whatever the runs hold is shown as text. The same runs give
/// the same page. Throws Error when there is no run.
std::string report_page(std::span<const run::RunData> runs);

}  // namespace lockstep::report
