// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "cli/program.h"
#include "lockstep/comm/connect.h"

namespace lockstep::cli {

/// Hosts of one machine, joined by a cable or a switch (tools/hosts.sh).
struct Network {
  const char* name;
  int hosts;
  std::vector<std::string> options;
};

inline void PrintTo(const Network& network, std::ostream* out) {
  *out << network.name;
}

inline bool has_gloo() {
  const auto backends = comm::backends();
  return std::find(backends.begin(), backends.end(), "gloo") != backends.end();
}

#define SKIP_WITHOUT_GLOO() \
  if (!has_gloo()) GTEST_SKIP() << "this build has no Gloo (headers: libgloo-dev)"

/// `script` runs on each host, with HOST and HOSTS set.
inline Ended run_on_hosts(const Network& network, const std::string& script,
                          std::map<std::string, std::string> environment = {}) {
  environment.insert({{"LOCKSTEP", built("bin/lockstep")}, {"RANKS", built("tests/cli/endless_ranks")}});
  std::vector<std::string> arguments = network.options;
  for (const auto& word : {std::to_string(network.hosts), std::string("sh"), std::string("-c"), script})
    arguments.push_back(word);
  return run_program(arguments, {.program = LOCKSTEP_HOSTS_SH, .environment = std::move(environment)});
}

#define SKIP_WHERE_FORBIDDEN(ended) \
  if ((ended).exit_code == 77) GTEST_SKIP() << (ended).err

}  // namespace lockstep::cli
