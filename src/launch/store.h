// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "lockstep/base/detail/descriptor.h"

namespace lockstep::launch {

/// A socket that takes connections at this port, 0 for a free one. `any_host`: of other hosts, else only of this one.
/// Throws Error when the port is taken.
Descriptor listen_on(int port, bool any_host);

/// The key-value store where the ranks of a run find each other (c10d's TCPStore), served by this process's threads
/// while this lives.
class ServedStore {
 public:
  /// See listen_on().
  ServedStore(int port, bool any_host);
  ~ServedStore();
  int port() const { return port_; }
  void set(const std::string& key, const std::string& value);
  /// Waits until somebody has set it.
  std::string get(const std::string& key);
  bool has(const std::string& key);

 private:
  struct Server;
  int port_;
  std::unique_ptr<Server> server_;
};

}  // namespace lockstep::launch
