// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <locale>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

namespace lockstep {

/// A caller's mistake. The message names the operation, the argument, what was got and what was expected:
/// `all_reduce: tensor has dtype complex64, expected float32, float64, ...`.
class Error : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

/// Joins its arguments as a stream would that knows no locale: files and keys are made of it, too.
template <class... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream out;
  out.imbue(std::locale::classic());
  (out << ... << parts);
  return std::move(out).str();
}

/// Throws Error("OPERATION: ..."): `fail("parse_devices", "got '", spec, "', expected ...")`.
template <class... Parts>
[[noreturn]] void fail(const char* operation, const Parts&... parts) {
  throw Error(text(operation, ": ", parts...));
}

/// Checks a caller's argument: `require(size > 0, "Group", "size is ", size, ", expected at least 1")`.
/// The message's parts are only put together when the check fails.
template <class... Parts>
void require(bool holds, const char* operation, const Parts&... parts) {
  if (!holds) [[unlikely]]
    fail(operation, parts...);
}

namespace detail {
[[noreturn]] void broken_invariant(const char* condition, const char* file, int line) noexcept;
}

}  // namespace lockstep

/// A broken invariant is our own bug, not the caller's: say where, and stop. Stays on in release builds.
#define LOCKSTEP_ASSERT(condition) \
  (static_cast<bool>(condition) ? void(0) : ::lockstep::detail::broken_invariant(#condition, __FILE__, __LINE__))
