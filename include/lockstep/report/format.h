// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

/// Numbers as people read them. Never by the locale of the process: a point is a point.
namespace lockstep::report {

/// So many digits after the point: fixed(0.83527, 3) is "0.835". "nan" and "inf" for what is no number.
std::string fixed(double value, int digits);

/// So many significant digits, no zeros that say nothing: compact(0.0125, 3) is "0.0125", compact(1e-7, 3) "1e-7".
std::string compact(double value, int digits);

/// With k, M, G for thousands: "985", "21.4k", "3.2M".
std::string short_number(double value);

/// A duration with the unit that fits: "38 us", "12.4 ms", "3.21 s", "4:05", "2:03:59" (hours, minutes, seconds).
std::string duration(double seconds);

/// A clock: "0:07", "4:05", "2:03:59"; "?" for what is no time.
std::string clock(double seconds);

/// Thousands apart, by a narrow space that a terminal shows as one column: "60 000".
std::string grouped(int64_t value);

/// How many columns a UTF-8 text takes on a terminal, counting a character as one.
size_t columns_of(std::string_view utf8);

}  // namespace lockstep::report
