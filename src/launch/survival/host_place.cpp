// SPDX-License-Identifier: Apache-2.0
#include "launch/survival/host_place.h"

#include <sstream>

#include "lockstep/base/error.h"

namespace lockstep::launch {

std::string HostPlace::name() const {
  return count == 1 ? text("the host of rank ", first) : text("the host of ranks ", first, " to ", first + count - 1);
}

std::string to_text(const KnownHosts& hosts) {
  std::string out = text(hosts.silent);
  for (const HostPlace& host : hosts.places)
    out += text(" ", host.first, " ", host.count, " ", host.door, " ", host.address);
  return out;
}

KnownHosts known_hosts_of(const std::string& text) {
  std::istringstream in(text);
  KnownHosts out;
  in >> out.silent;
  for (HostPlace host; in >> host.first >> host.count >> host.door >> host.address;) out.places.push_back(host);
  return out;
}

bool may_go_on(int here, int elsewhere, bool with_the_keeper) {
  return with_the_keeper ? here >= elsewhere : here > elsewhere;
}

std::string cut_off(int here, int elsewhere) {
  return text("only ", here, " of ", here + elsewhere, " hosts ", here == 1 ? "is" : "are",
              " heard of here, and the silent ones may go on without ", here == 1 ? "it" : "them",
              "; if they do not, start all again");
}

}  // namespace lockstep::launch
