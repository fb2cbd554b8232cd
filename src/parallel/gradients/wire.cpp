// SPDX-License-Identifier: Apache-2.0
// The names of what gradients travel as.
#include "lockstep/parallel/wire.h"

#include <cmath>
#include <cstdlib>

#include "lockstep/base/detail/digits.h"
#include "lockstep/base/error.h"

namespace lockstep::parallel {
namespace {

// The number behind the colon, or `otherwise` where there is none.
double number_after(const std::string& wire, double otherwise) {
  const auto colon = wire.find(':');
  if (colon == std::string::npos) return otherwise;
  const std::string digits = wire.substr(colon + 1);
  char* end = nullptr;
  const double value = std::strtod(digits.c_str(), &end);
  require(!digits.empty() && *end == '\0', "parse_wire", "got '", wire, "', expected a number behind the colon");
  return value;
}

}  // namespace

std::string to_string(const Wire& wire) {
  if (const auto* rounded = std::get_if<RoundedWire>(&wire))
    return rounded->type == RoundedWire::Type::bf16 ? "bf16" : "fp16";
  if (const auto* top_k = std::get_if<TopK>(&wire)) return "top_k:" + digits_of(top_k->share);
  if (const auto* power_sgd = std::get_if<PowerSgd>(&wire)) return text("power_sgd:", power_sgd->rank);
  return "none";
}

Wire parse_wire(const std::string& name) {
  const std::string kind = name.substr(0, name.find(':'));
  Wire wire;
  if (name == "bf16") {
    wire = RoundedWire{RoundedWire::Type::bf16};
  } else if (name == "fp16") {
    wire = RoundedWire{RoundedWire::Type::fp16};
  } else if (kind == "top_k") {
    wire = TopK{.share = number_after(name, TopK{}.share)};
  } else if (kind == "power_sgd") {
    const double rank = number_after(name, static_cast<double>(PowerSgd{}.rank));
    require(rank == std::floor(rank) && std::abs(rank) < 1e6, "parse_wire", "got '", name, "', expected a whole rank");
    wire = PowerSgd{.rank = static_cast<int64_t>(rank)};
  } else {
    require(name == "none", "parse_wire", "got '", name, "', expected none, bf16, fp16, top_k:SHARE or power_sgd:RANK");
  }
  check(wire);
  return wire;
}

void check(const Wire& wire) {
  if (const auto* top_k = std::get_if<TopK>(&wire)) {
    require(top_k->share > 0 && top_k->share <= 1, "top_k", "share is ", top_k->share,
            ", expected more than 0 and at most 1");
    require(top_k->start >= 0, "top_k", "start is ", top_k->start, ", expected 0 or more");
  }
  if (const auto* power_sgd = std::get_if<PowerSgd>(&wire)) {
    require(power_sgd->rank >= 1, "power_sgd", "rank is ", power_sgd->rank, ", expected at least 1");
    require(power_sgd->start >= 0, "power_sgd", "start is ", power_sgd->start, ", expected 0 or more");
  }
}

}  // namespace lockstep::parallel
