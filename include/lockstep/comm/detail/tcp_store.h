// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <string>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

namespace lockstep::comm {

/// c10d's store, served here or elsewhere. With each connection c10d asks for the name of the host's address, only to
/// write it into a log. Where the host is an address, nobody needs the answer: where no name server gives one, that
/// takes 1 s, and not 10.
c10::intrusive_ptr<c10d::TCPStore> make_tcp_store(const std::string& host, const c10d::TCPStoreOptions& options);

}  // namespace lockstep::comm
