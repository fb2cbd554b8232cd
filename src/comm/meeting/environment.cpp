// SPDX-License-Identifier: Apache-2.0
// What launchers tell a process about its place. They nest (srun starts torchrun, a pod's shell starts mpirun), so the
// variables of several may be set: those that only the innermost can have set are looked at first.
#include "lockstep/comm/connect.h"

#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "comm/meeting/host_list.h"
#include "lockstep/base/error.h"

namespace lockstep::comm {
namespace {

constexpr const char* operation = "connect";

using Lookup = std::function<std::optional<std::string>(const std::string&)>;

// The variables, with errors that say what is wrong with one. An empty variable counts as not set.
class Variables {
 public:
  explicit Variables(const Lookup& get) : get_(get) {}

  std::optional<std::string> find(const std::string& name) const {
    auto value = get_(name);
    if (value && value->empty()) value.reset();
    return value;
  }

  bool has(const std::string& name) const { return find(name).has_value(); }

  std::string first_of(const std::vector<std::string>& names) const {
    for (const auto& name : names)
      if (auto value = find(name)) return *value;
    return {};
  }

  std::string need(const std::string& name, const std::string& expected) const {
    auto value = find(name);
    require(value.has_value(), operation, name, " is not set, expected ", expected);
    return *std::move(value);
  }

  int number(const std::string& name, int low, int high, const std::string& what) const {
    const std::string value = need(name, what);
    int64_t number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    require(error == std::errc() && end == value.data() + value.size() && low <= number && number <= high, operation,
            name, " is '", value, "', expected ", what, ", from ", low, " to ", high);
    return static_cast<int>(number);
  }

  bool flag(const std::string& name) const {
    const auto value = find(name);
    if (!value || *value == "False" || *value == "false" || *value == "0") return false;
    require(*value == "True" || *value == "true" || *value == "1", operation, name, " is '", *value,
            "', expected True or False");
    return true;
  }

 private:
  const Lookup& get_;
};

constexpr int max_size = 1 << 20;
constexpr int max_port = 65535;

struct Names {
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
};

constexpr Names torch_names{"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
constexpr Names openmpi_names{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                              "OMPI_COMM_WORLD_LOCAL_SIZE"};
constexpr Names mpich_names{"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"};

void read_rank(const Variables& variables, const Names& names, Environment& place) {
  place.size = variables.number(names.size, 1, max_size, "the number of processes");
  place.rank = variables.number(names.rank, 0, place.size - 1, text("a rank below ", names.size));
}

// Both or none. None means one process on this host, as in a pod of its own.
void read_local_rank(const Variables& variables, const Names& names, Environment& place) {
  if (!variables.has(names.local_rank) && !variables.has(names.local_size)) return;
  place.local_size = variables.number(names.local_size, 1, place.size, "the number of processes on this host");
  place.local_rank =
      variables.number(names.local_rank, 0, place.local_size - 1, text("a rank below ", names.local_size));
}

// Processes that can't talk before they are connected agree on a port when they make it from the same text. It lies
// below the ports that kernels give away on their own.
int port_from(const std::string& job) {
  uint64_t hash = 14695981039346656037u;  // FNV-1a: the same on every host
  for (unsigned char c : job) hash = (hash ^ c) * 1099511628211u;
  return 20000 + static_cast<int>(hash % 10000);
}

int read_port(const Variables& variables) {
  return variables.number("MASTER_PORT", 1, max_port, "the port where the store listens");
}

// `lockstep run`, torchrun and operators that set torchrun's variables.
Environment read_torch(const Variables& variables, const char* launcher) {
  Environment place;
  place.launcher = launcher;
  read_rank(variables, torch_names, place);
  read_local_rank(variables, torch_names, place);
  if (place.size > 1) {
    place.store_host =
        variables.need("MASTER_ADDR", text("the address of rank 0's host, as WORLD_SIZE is ", place.size));
    place.store_port = read_port(variables);
  }
  place.store_is_served = variables.flag("TORCHELASTIC_USE_AGENT_STORE");
  place.job = variables.first_of({"LOCKSTEP_RUN", "TORCHELASTIC_RUN_ID"});
  return place;
}

// MASTER_ADDR, where the user gives one. On one host none is needed: rank 0 takes any port and publishes it. Over
// several hosts MPI has connections of its own and names no address, which leaves the store without one.
void read_mpi_store(const Variables& variables, Environment& place) {
  const bool one_host = place.local_size == place.size;
  if (const auto address = variables.find("MASTER_ADDR"))
    place.store_host = *address;
  else if (one_host)
    place.store_host = "127.0.0.1";
  if (variables.has("MASTER_PORT"))
    place.store_port = read_port(variables);
  else if (!one_host && !place.store_host.empty())
    place.store_port = port_from(place.job);
}

Environment read_openmpi(const Variables& variables) {
  Environment place;
  place.launcher = "openmpi";
  read_rank(variables, openmpi_names, place);
  read_local_rank(variables, openmpi_names, place);
  place.job = variables.first_of({"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"});
  read_mpi_store(variables, place);
  return place;
}

Environment read_mpich(const Variables& variables) {
  Environment place;
  place.launcher = "mpich";
  read_rank(variables, mpich_names, place);
  read_local_rank(variables, mpich_names, place);
  place.job = variables.first_of({"PMIX_NAMESPACE", "PMI_JOBID"});
  read_mpi_store(variables, place);
  return place;
}

// The variables of a step (srun). Those of an allocation alone are set for a batch script too, which is one process.
Environment read_slurm(const Variables& variables) {
  Environment place;
  place.launcher = "slurm";
  const char* size = variables.has("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  read_rank(variables, {"SLURM_PROCID", size, "", ""}, place);
  const char* tasks = variables.has("SLURM_STEP_TASKS_PER_NODE") ? "SLURM_STEP_TASKS_PER_NODE" : "SLURM_TASKS_PER_NODE";
  if (const auto counts_text = variables.find(tasks)) {
    const auto counts = expand_counts(operation, tasks, *counts_text);
    const int node =
        variables.number("SLURM_NODEID", 0, static_cast<int>(counts.size()) - 1, text("a host of ", tasks));
    place.local_size = counts[node];
    place.local_rank = variables.number("SLURM_LOCALID", 0, place.local_size - 1, text("a rank below that of ", tasks));
  }
  place.job =
      variables.first_of({"SLURM_JOB_ID", "SLURM_JOBID"}) + "." + variables.first_of({"SLURM_STEP_ID", "SLURM_STEPID"});
  if (place.size == 1) return place;
  if (const auto address = variables.find("MASTER_ADDR")) {
    place.store_host = *address;
  } else {
    const char* list = variables.has("SLURM_STEP_NODELIST") ? "SLURM_STEP_NODELIST" : "SLURM_NODELIST";
    const auto hosts = variables.need(list, "the hosts of this step (or MASTER_ADDR)");
    place.store_host = expand_host_list(operation, list, hosts).front();
  }
  place.store_port = variables.has("MASTER_PORT") ? read_port(variables) : port_from(place.job);
  return place;
}

// Kubeflow's Trainer sets what torchrun reads in each pod. Where a pod runs another program instead, that program is
// the pod's one process and its threads take all devices, however many processes torchrun would have started.
Environment read_trainer(const Variables& variables) {
  Environment place;
  const std::string expected =
      "a number (the pods of the job are its ranks); where pods come and go, torchrun gives the ranks: torchrun "
      "--no-python PROGRAM";
  place.size = variables.number("PET_NNODES", 1, max_size, expected);
  if (place.size == 1) {
    place.launcher = "none";
    return place;
  }
  place.launcher = "kubeflow";
  place.rank = variables.number("PET_NODE_RANK", 0, place.size - 1, expected);
  place.store_host = variables.need("PET_MASTER_ADDR", "the address of pod 0, as PET_NNODES is above 1");
  place.store_port = variables.number("PET_MASTER_PORT", 1, max_port, "the port where the store listens");
  return place;
}

// A script may hand on the launcher's numbers as RANK and WORLD_SIZE. Others would be left over from another launcher,
// and nobody could say which of the two are meant.
void check_agreement(const Variables& variables, const Environment& place) {
  const auto check = [&](const char* name, int value) {
    if (!variables.has(name)) return;
    require(variables.number(name, 0, max_size, "a number of processes") == value, operation, name, " is '",
            *variables.find(name), "', but ", place.launcher, "'s own variables say ", value,
            ": expected the same, or one of the two launchers' variables unset");
  };
  check("RANK", place.rank);
  check("WORLD_SIZE", place.size);
}

Environment read_launcher(const Variables& variables) {
  if (variables.has("LOCKSTEP_RUN")) return read_torch(variables, "lockstep run");
  if (variables.has("TORCHELASTIC_RUN_ID")) return read_torch(variables, "torchrun");

  const bool slurm =
      variables.has("SLURM_PROCID") && (variables.has("SLURM_STEP_ID") || variables.has("SLURM_STEP_NUM_TASKS"));
  const bool hydra = variables.has("MPI_LOCALRANKID");  // else PMI_RANK is srun's, which knows the hosts too
  Environment place;
  if (variables.has("OMPI_COMM_WORLD_RANK") || variables.has("OMPI_COMM_WORLD_SIZE"))
    place = read_openmpi(variables);
  else if ((variables.has("PMI_RANK") || variables.has("PMI_SIZE")) && (hydra || !slurm))
    place = read_mpich(variables);
  else if (slurm)
    place = read_slurm(variables);
  else if (variables.has("RANK") || variables.has("WORLD_SIZE"))
    return read_torch(variables, "env");
  else if (variables.has("PET_NNODES") || variables.has("PET_NODE_RANK"))
    return read_trainer(variables);
  else
    place.launcher = "none";
  if (place.launcher != "none") check_agreement(variables, place);
  return place;
}

// MPICH's ranks are told nothing that names their job. What they share on a host is the process that started them: the
// nearest ancestor without PMI_RANK in its environment.
std::string hydra_job() {
  for (long process = getppid(); process > 1;) {
    std::ifstream environment(text("/proc/", process, "/environ"));
    const std::string all{std::istreambuf_iterator<char>(environment), {}};
    if (('\0' + all).find(std::string("\0PMI_RANK=", 10)) == std::string::npos) return text("hydra-", process);
    std::ifstream status(text("/proc/", process, "/status"));
    std::string word;
    while (status >> word && word != "PPid:") {
    }
    if (!(status >> process)) break;
  }
  return {};
}

}  // namespace

Environment read_environment(const Lookup& get) {
  Environment place = read_launcher(Variables(get));
  if (place.size == 1) {
    place.store_host.clear();
    place.store_port = 0;
  }
  return place;
}

Environment read_environment() {
  Environment place = read_environment([](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  });
  if (place.launcher == "mpich" && place.job.empty()) place.job = hydra_job();
  return place;
}

}  // namespace lockstep::comm
