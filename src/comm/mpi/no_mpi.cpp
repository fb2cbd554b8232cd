// SPDX-License-Identifier: Apache-2.0
#include "comm/mpi/mpi.h"
#include "lockstep/base/error.h"

namespace lockstep::comm {

std::shared_ptr<Transport> make_mpi_transport() {
  fail("mpi", "this build has no MPI, expected one configured where MPI is installed (Debian: libopenmpi-dev)");
}

bool has_mpi() {
  return false;
}

const char* mpi_launcher() {
  return "";
}

}  // namespace lockstep::comm
