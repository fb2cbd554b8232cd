// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace lockstep::launch {

/// A host of the run that does not keep its roster.
struct HostPlace {
  int first = 0;  // of its ranks
  int count = 0;  // 0: it has not said
  int door = 0;   // the port where its launcher would be reported to
  std::string address = {};

  bool has(int rank) const { return rank >= first && rank < first + count; }
  std::string name() const;
};

/// What the keeper tells the others, so that they can go on without it.
struct KnownHosts {
  std::vector<HostPlace> places = {};  // in the order in which they would keep the roster
  int silent = 0;                      // those that fell silent lately, and may work on their own
};
std::string to_text(const KnownHosts& hosts);
KnownHosts known_hosts_of(const std::string& text);

/// Whether hosts may go on without others. Those may live on as well, cut off from these, unless their kernel has said
/// that their launcher ended. Of two halves the one with the keeper goes on.
bool may_go_on(int here, int elsewhere, bool with_the_keeper);

/// Why they may not.
std::string cut_off(int here, int elsewhere);

}  // namespace lockstep::launch
