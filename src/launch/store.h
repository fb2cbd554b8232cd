// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

namespace lockstep::launch {

/// The key-value store where the ranks of a run find each other (c10d's TCPStore), served by this process's threads
/// while this lives.
class ServedStore {
 public:
  /// Port 0 takes a free one. `any_host`: other hosts may connect, else only this one.
  /// Throws Error when the port is taken.
  ServedStore(int port, bool any_host);
  ~ServedStore();
  int port() const { return port_; }
  void set(const std::string& key, const std::string& value);
  bool has(const std::string& key);

 private:
  struct Server;
  int port_;
  std::unique_ptr<Server> server_;
};

}  // namespace lockstep::launch
