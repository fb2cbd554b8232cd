// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace lockstep::comm {

/// Ends all connections of this process to such a port, from any thread: calls that wait for them fail at once. For
/// those of c10d's store, which has no abort, to a host that has vanished: the kernel would go on trying for minutes.
/// `host`: a name or an address.
void shut_connections_to(const std::string& host, int port);

}  // namespace lockstep::comm
