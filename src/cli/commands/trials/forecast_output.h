// SPDX-License-Identifier: Apache-2.0
// A forecast as people and programs read it.
#pragma once

#include <string>

#include "lockstep/report/figure.h"
#include "lockstep/report/table.h"
#include "lockstep/trials/forecast.h"

namespace lockstep::cli {

report::Table forecast_table(const trials::ForecastResult& result);
/// All of it, for programs.
report::Table forecast_rows(const trials::ForecastResult& result);
/// Speedup over devices: a line a split with the edges of its band, what was measured, and the ideal.
report::Figure forecast_figure(const trials::ForecastResult& result);
/// Each row's forecast beside what was measured, by phases.
std::string checked(const trials::ForecastResult& result);
/// What the numbers rest on, and where they leave it.
std::string notes_of(const trials::ForecastResult& result);

}  // namespace lockstep::cli
