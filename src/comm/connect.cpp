// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/connect.h"

#include <algorithm>
#include <cstdlib>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "comm/connect_over.h"
#include "comm/gloo/gloo.h"
#include "comm/meeting/agreed_backend.h"
#include "comm/meeting/rendezvous.h"
#include "comm/mpi/mpi.h"
#include "comm/nccl/nccl.h"
#include "comm/transport/transport_backend.h"
#include "lockstep/base/error.h"
#include "lockstep/numerics/device_choice.h"

namespace lockstep::comm {
namespace {

// How long those try to connect who would rather begin anew.
constexpr std::chrono::milliseconds kHurry{5000};

// Empty where the ranks are still to find out what GPUs they have between them.
std::string choose_alone(const Environment& place) {
  if (place.launcher == mpi_launcher()) return "mpi";
  return has_nccl() ? "" : "gloo";
}

// The GPU of this process, among those that it sees; -1 where it sees none.
int own_gpu(const Environment& place) {
  const auto visible = static_cast<int>(cuda_devices().size());
  return visible > 0 ? place.local_rank % visible : -1;
}

// What a caller may ask for in this build.
std::string choices(const std::vector<std::string>& built) {
  if (built.empty()) return "a build with gloo, mpi or nccl: this one joins no processes";
  std::string joined = "auto";
  for (const auto& name : built) joined += (&name == &built.back() ? " or " : ", ") + name;
  return joined + ", which this build has";
}

}  // namespace

std::vector<std::string> backends() {
  std::vector<std::string> names;
  if (has_gloo()) names.push_back("gloo");
  if (has_mpi()) names.push_back("mpi");
  if (has_nccl()) names.push_back("nccl");
  return names;
}

Group connect_over(c10::intrusive_ptr<c10d::Store> opened, const Environment& place, const ConnectOptions& options) {
  std::string backend = options.backend == "auto" ? choose_alone(place) : options.backend;
  const auto known = backends();
  const bool is_known = backend.empty() || std::find(known.begin(), known.end(), backend) != known.end();
  require(is_known || (place.size == 1 && options.backend == "auto"), "connect", "backend is '", backend,
          "', expected ", choices(known));
  if (place.size == 1) return local_groups(1, options.timeout)[0];
  if (backend == "mpi") {
    require(place.launcher == mpi_launcher(), "connect", "backend mpi, but the launcher is ", place.launcher,
            ", expected the mpirun of the MPI that is built in, ", mpi_launcher());
    return Group(make_transport_backend(make_mpi_transport(), options.timeout));
  }
  require(!place.store_host.empty(), "connect",
          "MASTER_ADDR is not set, expected the address of rank 0's host: the job ", "spans several hosts, and ",
          place.launcher, " does not say where they meet");
  const auto patience = options.asks_around ? options.timeout : std::min(options.timeout, kHurry);
  if (!opened) opened = open_store(place, patience);
  const auto store = c10::make_intrusive<c10d::PrefixStore>(text("lockstep/", options.name),
                                                            shared_store(std::move(opened), options.given_up));
  store->setTimeout(patience);
  const int gpu = own_gpu(place);
  if (backend.empty() || backend == "nccl")
    backend = agree_on_backend(*store, place.rank, place.size, gpu_identity(gpu), options.backend, patience);
  try {
    if (backend == "nccl") {
      if (options.sets_environment) setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0", /*overwrite=*/0);
      return Group(make_transport_backend(make_nccl_transport(store, place.rank, place.size, gpu, patience),
                                          options.timeout, options.asks_around));
    }
    const std::string address = options.interface.empty() ? address_towards(place.store_host) : options.interface;
    return Group(make_transport_backend(make_gloo_transport(store, place.rank, place.size, address, patience),
                                        options.timeout, options.asks_around));
  } catch (const TransportFailure& failure) {
    throw CommError(failure.peer, "connect", options.timeout.count() / 1000.0, text("connect: ", failure.what()));
  }
}

Group connect(const Environment& place, const ConnectOptions& options) {
  return connect_over({}, place, options);
}

std::string usual_devices(const Group& group) {
  const Environment place = group.size() > 1 ? read_environment() : Environment{};
  return lockstep::usual_devices(place.local_rank, place.local_size);
}

Group connect(const ConnectOptions& options) {
  return connect(read_environment(), options);
}

}  // namespace lockstep::comm
