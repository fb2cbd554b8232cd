// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/detail/members.h"

#include <sstream>

#include "lockstep/base/error.h"

namespace lockstep::comm::members {
namespace {

// In the place of an empty text.
constexpr const char* kNone = "-";

}  // namespace

std::string to_text(const Generation& generation) {
  const auto word = [](const std::string& text) { return text.empty() ? kNone : text; };
  std::string out = text(generation.number, " ", generation.enough ? 1 : 0, " ", word(generation.run), " ",
                         word(generation.store_host), " ", generation.store_port);
  for (const int rank : generation.ranks) out += text(" ", rank);
  return out;
}

Generation parse(const std::string& text) {
  std::istringstream in(text);
  Generation out;
  require(static_cast<bool>(in >> out.number >> out.enough >> out.run >> out.store_host >> out.store_port), "members",
          "the launcher said '", text, "', expected a number, 0 or 1, a run, a store's host and port, and ranks");
  for (std::string* word : {&out.run, &out.store_host})
    if (*word == kNone) word->clear();
  for (int rank = 0; in >> rank;) out.ranks.push_back(rank);
  return out;
}

std::string ready_key(int rank, int process) {
  return text("lockstep/ready/", rank, "/", process);
}

std::string again_key(int generation) {
  return text("lockstep/again/", generation);
}

}  // namespace lockstep::comm::members
