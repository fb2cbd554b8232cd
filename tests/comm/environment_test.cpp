// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/connect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "comm/meeting/host_list.h"
#include "lockstep/base/error.h"

namespace lockstep::comm {

// For gtest's messages.
void PrintTo(const Environment& e, std::ostream* out) {
  *out << "{" << e.launcher << ", rank " << e.rank << "/" << e.size << ", local " << e.local_rank << "/" << e.local_size
       << ", store '" << e.store_host << "':" << e.store_port << (e.store_is_served ? " served" : "") << ", job '"
       << e.job << "'}";
}

bool operator==(const Environment& a, const Environment& b) {
  const auto all = [](const Environment& e) {
    return std::tie(e.launcher, e.rank, e.size, e.local_rank, e.local_size, e.store_host, e.store_port,
                    e.store_is_served, e.job);
  };
  return all(a) == all(b);
}

namespace {

using Variables = std::map<std::string, std::string>;

Environment read(const Variables& variables) {
  return read_environment([&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

Variables with(Variables variables, const Variables& changes) {
  for (const auto& [name, value] : changes) variables[name] = value;
  return variables;
}

Variables without(Variables variables, const std::string& name) {
  variables.erase(name);
  return variables;
}

// What each launcher sets for rank 2 of 4, on two hosts with two processes each.
Variables lockstep_run() {
  return {{"RANK", "2"},
          {"WORLD_SIZE", "4"},
          {"LOCAL_RANK", "0"},
          {"LOCAL_WORLD_SIZE", "2"},
          {"MASTER_ADDR", "10.0.0.1"},
          {"MASTER_PORT", "29511"},
          {"TORCHELASTIC_USE_AGENT_STORE", "True"},
          {"LOCKSTEP_RUN", "7f3a"}};
}

Variables torchrun() {
  return {{"RANK", "2"},
          {"WORLD_SIZE", "4"},
          {"LOCAL_RANK", "0"},
          {"LOCAL_WORLD_SIZE", "2"},
          {"GROUP_RANK", "1"},
          {"MASTER_ADDR", "node1"},
          {"MASTER_PORT", "29500"},
          {"TORCHELASTIC_USE_AGENT_STORE", "True"},
          {"TORCHELASTIC_RUN_ID", "train"}};
}

Variables pytorch_job() {
  return {{"RANK", "2"},
          {"WORLD_SIZE", "4"},
          {"MASTER_ADDR", "job-master-0"},
          {"MASTER_PORT", "23456"},
          {"KUBERNETES_SERVICE_HOST", "10.96.0.1"}};
}

// Pod 2 of 4; torchrun would start four processes in each.
Variables kubeflow_trainer() {
  return {{"PET_NNODES", "4"},
          {"PET_NPROC_PER_NODE", "4"},
          {"PET_NODE_RANK", "2"},
          {"PET_MASTER_ADDR", "job-node-0-0.job"},
          {"PET_MASTER_PORT", "29400"}};
}

Variables openmpi() {
  return {{"OMPI_COMM_WORLD_RANK", "2"},       {"OMPI_COMM_WORLD_SIZE", "4"},    {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}, {"PMIX_NAMESPACE", "1040515073"}, {"PMIX_RANK", "2"}};
}

Variables mpich() {
  return {{"PMI_RANK", "2"}, {"PMI_SIZE", "4"}, {"PMI_FD", "6"}, {"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "2"}};
}

Variables slurm() {
  return {{"SLURM_JOB_ID", "812"},
          {"SLURM_STEP_ID", "3"},
          {"SLURM_PROCID", "2"},
          {"SLURM_NTASKS", "8"},
          {"SLURM_STEP_NUM_TASKS", "4"},
          {"SLURM_LOCALID", "0"},
          {"SLURM_NODEID", "1"},
          {"SLURM_STEP_TASKS_PER_NODE", "2(x2)"},
          {"SLURM_NODELIST", "gpu[01-04]"},
          {"SLURM_STEP_NODELIST", "gpu[03-04]"}};
}

Variables one_openmpi_host() {
  return with(openmpi(), {{"OMPI_COMM_WORLD_LOCAL_RANK", "2"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}});
}
Variables one_mpich_host() {
  return with(mpich(), {{"MPI_LOCALRANKID", "2"}, {"MPI_LOCALNRANKS", "4"}});
}

struct Good {
  const char* what;
  Variables variables;
  Environment expected;
};

TEST(Environment, IsReadFromEveryLauncher) {
  const Good cases[] = {
      {"nothing", {}, {"none", 0, 1, 0, 1, "", 0, false, ""}},
      {"an address for nobody", {{"MASTER_ADDR", "a"}, {"LOCAL_RANK", "1"}}, {"none", 0, 1, 0, 1, "", 0, false, ""}},
      {"lockstep run", lockstep_run(), {"lockstep run", 2, 4, 0, 2, "10.0.0.1", 29511, true, "7f3a"}},
      {"lockstep run below torchrun",
       with(torchrun(), lockstep_run()),
       {"lockstep run", 2, 4, 0, 2, "10.0.0.1", 29511, true, "7f3a"}},
      {"lockstep run -n 1",
       with(lockstep_run(), {{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"LOCAL_WORLD_SIZE", "1"}}),
       {"lockstep run", 0, 1, 0, 1, "", 0, true, "7f3a"}},
      {"torchrun", torchrun(), {"torchrun", 2, 4, 0, 2, "node1", 29500, true, "train"}},
      {"torchrun without a store",
       without(torchrun(), "TORCHELASTIC_USE_AGENT_STORE"),
       {"torchrun", 2, 4, 0, 2, "node1", 29500, false, "train"}},
      {"torchrun below srun", with(slurm(), torchrun()), {"torchrun", 2, 4, 0, 2, "node1", 29500, true, "train"}},
      {"Kubernetes", pytorch_job(), {"env", 2, 4, 0, 1, "job-master-0", 23456, false, ""}},
      {"Kubeflow's Trainer, without torchrun",
       kubeflow_trainer(),
       {"kubeflow", 2, 4, 0, 1, "job-node-0-0.job", 29400, false, ""}},
      {"torchrun below Kubeflow's Trainer",
       with(kubeflow_trainer(), torchrun()),
       {"torchrun", 2, 4, 0, 2, "node1", 29500, true, "train"}},
      {"lockstep run below Kubeflow's Trainer",
       with(kubeflow_trainer(), lockstep_run()),
       {"lockstep run", 2, 4, 0, 2, "10.0.0.1", 29511, true, "7f3a"}},
      {"PyTorchJob, which sets torchrun's arguments too",
       with(kubeflow_trainer(), pytorch_job()),
       {"env", 2, 4, 0, 1, "job-master-0", 23456, false, ""}},
      {"Kubeflow's Trainer with one pod", {{"PET_NNODES", "1"}}, {"none", 0, 1, 0, 1, "", 0, false, ""}},
      {"OpenMPI on one host", one_openmpi_host(), {"openmpi", 2, 4, 2, 4, "127.0.0.1", 0, false, "1040515073"}},
      {"OpenMPI on two hosts", openmpi(), {"openmpi", 2, 4, 0, 2, "", 0, false, "1040515073"}},
      {"OpenMPI on two hosts with an address",
       with(openmpi(), {{"MASTER_ADDR", "fd00::1"}, {"MASTER_PORT", "1234"}}),
       {"openmpi", 2, 4, 0, 2, "fd00::1", 1234, false, "1040515073"}},
      {"OpenMPI below srun",
       with(slurm(), one_openmpi_host()),
       {"openmpi", 2, 4, 2, 4, "127.0.0.1", 0, false, "1040515073"}},
      {"OpenMPI, handed on as RANK",
       with(one_openmpi_host(), {{"RANK", "2"}, {"WORLD_SIZE", "4"}}),
       {"openmpi", 2, 4, 2, 4, "127.0.0.1", 0, false, "1040515073"}},
      {"MPICH on one host", one_mpich_host(), {"mpich", 2, 4, 2, 4, "127.0.0.1", 0, false, ""}},
      {"MPICH on two hosts", mpich(), {"mpich", 2, 4, 0, 2, "", 0, false, ""}},
      {"MPICH's mpiexec below srun", with(slurm(), one_mpich_host()), {"mpich", 2, 4, 2, 4, "127.0.0.1", 0, false, ""}},
      {"srun", with(slurm(), {{"MASTER_PORT", "29501"}}), {"slurm", 2, 4, 0, 2, "gpu03", 29501, false, "812.3"}},
      {"srun with an address",
       with(slurm(), {{"MASTER_ADDR", "ib-gpu03"}, {"MASTER_PORT", "29501"}, {"WORLD_SIZE", "4"}}),
       {"slurm", 2, 4, 0, 2, "ib-gpu03", 29501, false, "812.3"}},
      {"srun that speaks PMI",
       with(slurm(), {{"PMI_RANK", "2"}, {"PMI_SIZE", "4"}, {"MASTER_PORT", "29501"}}),
       {"slurm", 2, 4, 0, 2, "gpu03", 29501, false, "812.3"}},
      {"srun -n 1",
       with(slurm(), {{"SLURM_PROCID", "0"},
                      {"SLURM_STEP_NUM_TASKS", "1"},
                      {"SLURM_NODEID", "0"},
                      {"SLURM_STEP_TASKS_PER_NODE", "1"}}),
       {"slurm", 0, 1, 0, 1, "", 0, false, "812.3"}},
      {"a batch script, which is one process",
       {{"SLURM_JOB_ID", "812"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"SLURM_NODELIST", "gpu[01-04]"}},
       {"none", 0, 1, 0, 1, "", 0, false, ""}},
      {"empty variables",
       {{"RANK", ""}, {"WORLD_SIZE", ""}, {"LOCKSTEP_RUN", ""}},
       {"none", 0, 1, 0, 1, "", 0, false, ""}},
  };
  for (const auto& [what, variables, expected] : cases) EXPECT_EQ(read(variables), expected) << what;
}

struct Bad {
  Variables variables;
  const char* message;  // a part of it
};

TEST(Environment, RejectsWhatIsBrokenAndNamesTheVariable) {
  const Bad cases[] = {
      {{{"RANK", "0"}}, "connect: WORLD_SIZE is not set, expected the number of processes"},
      {{{"WORLD_SIZE", "4"}}, "RANK is not set, expected a rank below WORLD_SIZE"},
      {{{"RANK", "0"}, {"WORLD_SIZE", "2"}}, "MASTER_ADDR is not set, expected the address of rank 0's host"},
      {without(pytorch_job(), "MASTER_PORT"), "MASTER_PORT is not set, expected the port"},
      {with(torchrun(), {{"RANK", "4"}}), "RANK is '4', expected a rank below WORLD_SIZE, from 0 to 3"},
      {with(torchrun(), {{"RANK", "-1"}}), "RANK is '-1', expected a rank below WORLD_SIZE, from 0 to 3"},
      {with(torchrun(), {{"RANK", "two"}}), "RANK is 'two', expected"},
      {with(torchrun(), {{"RANK", "2 "}}), "RANK is '2 ', expected"},
      {with(torchrun(), {{"WORLD_SIZE", "0"}}), "WORLD_SIZE is '0', expected the number of processes, from 1"},
      {with(torchrun(), {{"WORLD_SIZE", "99999999999999999999"}}), "WORLD_SIZE is '99999999999999999999', expected"},
      {with(torchrun(), {{"LOCAL_RANK", "2"}}),
       "LOCAL_RANK is '2', expected a rank below LOCAL_WORLD_SIZE, from 0 to 1"},
      {with(torchrun(), {{"LOCAL_WORLD_SIZE", "5"}}),
       "LOCAL_WORLD_SIZE is '5', expected the number of processes on this host, from 1 to 4"},
      {without(torchrun(), "LOCAL_WORLD_SIZE"), "LOCAL_WORLD_SIZE is not set"},
      {without(torchrun(), "LOCAL_RANK"), "LOCAL_RANK is not set"},
      {with(torchrun(), {{"MASTER_PORT", "0"}}),
       "MASTER_PORT is '0', expected the port where the store listens, from 1 to 65535"},
      {with(torchrun(), {{"MASTER_PORT", "70000"}}), "MASTER_PORT is '70000'"},
      {with(torchrun(), {{"TORCHELASTIC_USE_AGENT_STORE", "yes"}}),
       "TORCHELASTIC_USE_AGENT_STORE is 'yes', expected True or False"},
      {with(kubeflow_trainer(), {{"PET_NNODES", "1:4"}}), "PET_NNODES is '1:4', expected a number"},
      {with(kubeflow_trainer(), {{"PET_NNODES", "1:4"}}), "torchrun --no-python PROGRAM"},
      {with(kubeflow_trainer(), {{"PET_NODE_RANK", "4"}}), "PET_NODE_RANK is '4', expected"},
      {without(kubeflow_trainer(), "PET_NODE_RANK"), "PET_NODE_RANK is not set, expected a number"},
      {without(kubeflow_trainer(), "PET_NNODES"), "PET_NNODES is not set, expected a number"},
      {without(kubeflow_trainer(), "PET_MASTER_ADDR"), "PET_MASTER_ADDR is not set, expected the address of pod 0"},
      {without(kubeflow_trainer(), "PET_MASTER_PORT"), "PET_MASTER_PORT is not set, expected the port"},
      {{{"LOCKSTEP_RUN", "7f3a"}}, "WORLD_SIZE is not set"},
      {without(openmpi(), "OMPI_COMM_WORLD_SIZE"), "OMPI_COMM_WORLD_SIZE is not set"},
      {without(openmpi(), "OMPI_COMM_WORLD_RANK"), "OMPI_COMM_WORLD_RANK is not set"},
      {with(openmpi(), {{"RANK", "1"}}), "RANK is '1', but openmpi's own variables say 2"},
      {with(openmpi(), {{"MASTER_ADDR", "a"}, {"MASTER_PORT", "x"}}), "MASTER_PORT is 'x'"},
      {without(mpich(), "PMI_SIZE"), "PMI_SIZE is not set"},
      {with(slurm(), {{"WORLD_SIZE", "8"}}), "WORLD_SIZE is '8', but slurm's own variables say 4"},
      {with(slurm(), {{"SLURM_NODEID", "2"}}),
       "SLURM_NODEID is '2', expected a host of SLURM_STEP_TASKS_PER_NODE, from 0 to 1"},
      {with(slurm(), {{"SLURM_STEP_NODELIST", "gpu[03-"}}), "SLURM_STEP_NODELIST is 'gpu[03-', expected"},
      {without(without(slurm(), "SLURM_NODELIST"), "SLURM_STEP_NODELIST"), "SLURM_NODELIST is not set"},
      {without(without(slurm(), "SLURM_STEP_NUM_TASKS"), "SLURM_NTASKS"), "SLURM_NTASKS is not set"},
  };
  for (const auto& [variables, message] : cases) {
    try {
      ADD_FAILURE() << "expected '" << message << "', got " << testing::PrintToString(read(variables));
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr(message));
    }
  }
}

TEST(Environment, GivesAllProcessesOfAStepTheSamePortAndOtherStepsOthers) {
  const auto port = [](const Variables& changes) { return read(with(slurm(), changes)).store_port; };
  EXPECT_EQ(port({}), port({{"SLURM_PROCID", "0"}, {"SLURM_NODEID", "0"}}));
  EXPECT_NE(port({}), port({{"SLURM_STEP_ID", "4"}}));
  EXPECT_NE(port({}), port({{"SLURM_JOB_ID", "813"}}));
  for (int job = 0; job < 1000; ++job) {
    EXPECT_GE(port({{"SLURM_JOB_ID", std::to_string(job)}}), 20000);
    EXPECT_LT(port({{"SLURM_JOB_ID", std::to_string(job)}}), 30000);
  }
}

TEST(HostList, ExpandsSlurmsShortForm) {
  const std::pair<const char*, std::vector<std::string>> cases[] = {
      {"login1", {"login1"}},
      {"gpu[01-04,7],login1", {"gpu01", "gpu02", "gpu03", "gpu04", "gpu7", "login1"}},
      {"gpu[8-11]", {"gpu8", "gpu9", "gpu10", "gpu11"}},
      {"gpu[008-010]-ib", {"gpu008-ib", "gpu009-ib", "gpu010-ib"}},
      {"r[1-2]n[09-10]", {"r1n09", "r1n10", "r2n09", "r2n10"}},
      {"[1-2]", {"1", "2"}},
      {"a-b,c.d.example", {"a-b", "c.d.example"}},
  };
  for (const auto& [text, hosts] : cases) EXPECT_EQ(expand_host_list("test", "LIST", text), hosts) << text;
  for (const char* text : {"", "a,,b", "a,", "gpu[", "gpu]", "gpu]1[", "gpu[]", "gpu[1-]", "gpu[-1]", "gpu[3-1]",
                           "gpu[x]", "gpu[1", "gpu[0-999999999]", "r[0-999]n[0-999]", "gpu[99999999999999999999]"})
    EXPECT_THROW(expand_host_list("test", "LIST", text), Error) << text;
}

TEST(HostList, ExpandsSlurmsCounts) {
  EXPECT_EQ(expand_counts("test", "COUNTS", "3"), (std::vector<int>{3}));
  EXPECT_EQ(expand_counts("test", "COUNTS", "4(x2),3"), (std::vector<int>{4, 4, 3}));
  for (const char* text : {"", "0", "4(x0)", "4(x2", "4(2)", "4x2", "-1", "a", "4(x99999999)", "3,", "(x2)"})
    EXPECT_THROW(expand_counts("test", "COUNTS", text), Error) << text;
}

}  // namespace
}  // namespace lockstep::comm
