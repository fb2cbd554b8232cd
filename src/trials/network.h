// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "trials/child.h"

namespace lockstep::trials {

/// A network of hosts that are namespaces of this machine (tools/hosts.sh), for the processes of a trial.
class Network {
 public:
  Network(std::string rate, int hosts) : rate_(std::move(rate)), hosts_(hosts) {}

  /// Trial::launcher: a process on each host. It ends with NetworkForbidden::code where such networks are forbidden.
  std::vector<std::string> launcher() const;

 private:
  Folder folder_;
  std::string rate_;
  int hosts_;
};

}  // namespace lockstep::trials
