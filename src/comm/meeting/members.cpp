// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/detail/members.h"

#include <sstream>

#include "lockstep/base/error.h"

namespace lockstep::comm::members {

std::string to_text(const Generation& generation) {
  std::string out = text(generation.number, " ", generation.enough ? 1 : 0);
  for (const int rank : generation.ranks) out += text(" ", rank);
  return out;
}

Generation parse(const std::string& text) {
  std::istringstream in(text);
  Generation out;
  require(static_cast<bool>(in >> out.number >> out.enough), "members", "the launcher said '", text,
          "', expected a number, 0 or 1, and ranks");
  for (int rank = 0; in >> rank;) out.ranks.push_back(rank);
  return out;
}

std::string ready_key(int rank, int process) {
  return text("lockstep/ready/", rank, "/", process);
}

}  // namespace lockstep::comm::members
