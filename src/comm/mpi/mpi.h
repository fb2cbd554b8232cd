// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "comm/transport/transport.h"

namespace lockstep::comm {

/// Messages over the MPI that this process was started with: all ranks of MPI_COMM_WORLD. MPI is initialised by the
/// first call and finalised when the process ends; a process whose group broke ends without, as MPI would wait for
/// the dead. MPI cannot close a connection: peers of a rank that gives up notice at their timeout. Built without MPI
/// it throws Error.
std::shared_ptr<Transport> make_mpi_transport();

bool has_mpi();

/// The launcher whose processes the built-in MPI can join: "openmpi", or "mpich" for it and its kin. Empty without MPI.
/// Under another's launcher each process would be alone in its MPI_COMM_WORLD.
const char* mpi_launcher();

}  // namespace lockstep::comm
