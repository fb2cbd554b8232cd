// SPDX-License-Identifier: Apache-2.0
#include "lockstep/launch/launcher.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>

#include "launch/guard.h"
#include "launch/store.h"
#include "launch/supervisor.h"
#include "launch/survival/roster.h"
#include "lockstep/base/detail/processor.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/detail/members.h"

namespace lockstep::launch {
namespace {

// The options, checked and with their defaults worked out.
struct Plan {
  int local_size;
  int rank_offset;
  int world_size;
  bool several_hosts;
  std::string store_host;
  std::string job;
};

std::string new_job() {
  std::random_device random;
  return text(getpid(), "-", std::hex, random(), random());
}

Plan make_plan(const Options& options) {
  const int n = options.processes;
  require(n >= 1 && n <= 4096, "run", "-n is ", n, ", expected 1 to 4096 processes");
  require(!options.program.empty(), "run",
          "no program, expected one after --, as in 'lockstep run -n 4 -- ./train --lr 0.1'");
  for (const auto& host : options.hosts) require(!host.empty(), "run", "--hosts names an empty host");
  Plan plan{};
  plan.local_size = n;
  plan.world_size = options.world_size.value_or(n * std::max<int>(1, static_cast<int>(options.hosts.size())));
  plan.several_hosts = plan.world_size > n;
  require(plan.world_size >= n, "run", "--world-size is ", plan.world_size, ", expected at least -n, which is ", n);
  require(!plan.several_hosts || !options.hosts.empty(), "run", "--world-size is ", plan.world_size, " with -n ", n,
          ", expected --hosts too: the hosts of the run, rank 0's first");
  require(!plan.several_hosts || options.rank_offset, "run",
          "several hosts without --rank-offset, expected the rank of this host's first process (0 on ",
          options.hosts.empty() ? "" : options.hosts[0], ")");
  plan.rank_offset = options.rank_offset.value_or(0);
  require(plan.rank_offset >= 0 && plan.rank_offset + n <= plan.world_size, "run", "--rank-offset is ",
          plan.rank_offset, ", expected 0 to ", plan.world_size - n, " (", plan.world_size, " ranks, ", n, " here)");
  require(options.least >= 1 && options.least <= plan.world_size, "run", "--least is ", options.least,
          ", expected 1 to ", plan.world_size);
  require(options.survive || (!options.respawn && options.least == 1), "run",
          "--respawn and --least are for a run that goes on without a rank, expected --survive too");
  require(options.restarts >= 0, "run", "--restarts is ", options.restarts, ", expected 0 or more");
  const int last_port = options.survive && plan.several_hosts ? 65534 : 65535;  // then the next one is used too
  require(options.port >= 1 && options.port <= last_port, "run", "--port is ", options.port, ", expected 1 to ",
          last_port);
  for (const auto& [name, value] : {std::pair("--timeout", options.timeout.value_or(1)), {"--grace", options.grace}})
    require(std::isfinite(value) && value > 0 && value <= 1e6, "run", name, " is ", value,
            ", expected seconds, more than 0");
  plan.store_host = options.hosts.empty() ? "127.0.0.1" : options.hosts[0];
  plan.job = new_job();
  return plan;
}

// What torchrun sets too, so that Python's torch.distributed works under this launcher.
std::map<std::string, std::string> environment_of(int local_rank, const Plan& plan, const Options& options,
                                                  int own_port) {
  std::map<std::string, std::string> all{
      {"RANK", text(plan.rank_offset + local_rank)},
      {"WORLD_SIZE", text(plan.world_size)},
      {"LOCAL_RANK", text(local_rank)},
      {"LOCAL_WORLD_SIZE", text(plan.local_size)},
      {"MASTER_ADDR", plan.store_host},
      {"MASTER_PORT", text(plan.several_hosts ? options.port : own_port)},
      {"TORCHELASTIC_USE_AGENT_STORE", "True"},
      {"LOCKSTEP_RUN", plan.job},
  };
  if (options.survive) all[comm::members::variable] = text(own_port);
  // Python's Gloo listens where the host's name leads, which others may reach; the ranks of one host need not be
  // reached.
  if (!plan.several_hosts && std::getenv("GLOO_SOCKET_IFNAME") == nullptr) all["GLOO_SOCKET_IFNAME"] = "lo";
  for (const auto& [name, value] : options.environment) all.insert({name, value});
  if (options.timeout) all["LOCKSTEP_TIMEOUT"] = text(*options.timeout);
  if (std::getenv("OMP_NUM_THREADS") == nullptr)
    all["OMP_NUM_THREADS"] = text(std::max(1, cpu_info().cores / plan.local_size));
  return all;
}

// So that no file or pipe of ours takes the number of a standard stream that whoever started us has closed.
void open_standard_streams() {
  int fd = open("/dev/null", O_RDWR);
  while (fd >= 0 && fd <= 2) fd = open("/dev/null", O_RDWR);
  if (fd > 2) close(fd);
}

// At this port, where a host that comes back finds it; or at another where a launcher on the same host has it.
Descriptor listen_near(int port) {
  try {
    return listen_on(port, /*any_host=*/true);
  } catch (const Error&) {
    return listen_on(0, /*any_host=*/true);
  }
}

// Who works, where the others survive a rank's loss: first the launcher of rank 0's host knows.
std::unique_ptr<Roster> make_roster(const Plan& plan, const Options& options, ServedStore& store,
                                    Supervisor& supervisor) {
  const bool is_first = plan.rank_offset == 0;
  const int door_port = options.port + 1;
  OwnHost own{.store = store, .first = plan.rank_offset, .count = plan.local_size, .run = plan.job};
  if (plan.several_hosts) own.door = is_first ? listen_on(door_port, /*any_host=*/true) : listen_near(door_port);
  RosterOptions others{.ranks = plan.world_size,
                       .least = options.least,
                       .say = [&supervisor](const std::string& message) { supervisor.say(message); }};
  if (is_first) own.address = plan.store_host;
  if (!plan.several_hosts) return keep_roster(std::move(own), std::move(others));
  return share_roster(std::move(own), options.hosts, door_port, std::move(others));
}

// Ranks that survive others ask the store of their own launcher, and any of the hosts may be the last one.
std::unique_ptr<ServedStore> make_store(const Plan& plan, const Options& options) {
  const bool is_first = plan.rank_offset == 0;
  if (!is_first && !options.survive) return nullptr;
  return std::make_unique<ServedStore>(is_first && plan.several_hosts ? options.port : 0, plan.several_hosts);
}

struct Ended {
  int code;
  bool told;  // by a signal that asked for the end
};

Ended run_once(const Options& options, int restart) {
  const Plan plan = make_plan(options);
  Signals signals;
  Guard guard(text("LOCKSTEP_RUN=", plan.job));  // before the store has threads
  const std::unique_ptr<ServedStore> store = make_store(plan, options);
  std::unique_ptr<TerminalInput> input;
  if (plan.rank_offset == 0 && isatty(STDIN_FILENO)) input = std::make_unique<TerminalInput>();

  Supervisor supervisor(signals, std::chrono::milliseconds(static_cast<int64_t>(options.grace * 1000)));
  const auto command_of = [&](int local_rank) {
    RankCommand command;
    command.program = options.program;
    command.environment = environment_of(local_rank, plan, options, store ? store->port() : 0);
    command.environment["TORCHELASTIC_RESTART_COUNT"] = text(restart);
    command.environment["TORCHELASTIC_MAX_RESTARTS"] = text(options.restarts);
    command.captured = !options.no_prefix;
    command.signal_mask = signals.mask_before();
    return command;
  };
  if (options.survive)
    supervisor.survive(make_roster(plan, options, *store, supervisor), [&](int rank) -> std::optional<RankProcess> {
      if (!options.respawn) return std::nullopt;
      auto command = command_of(rank - plan.rank_offset);
      command.environment[comm::members::newcomer_variable] = "1";
      return start_rank(rank, command);
    });
  for (int local_rank = 0; local_rank < plan.local_size; ++local_rank) {
    auto command = command_of(local_rank);
    if (plan.rank_offset + local_rank == 0) command.stdin_fd = input ? input->rank_end().get() : STDIN_FILENO;
    supervisor.start(plan.rank_offset + local_rank, command);
  }
  if (input) input->rank_end().close();
  int code = supervisor.run(input.get());
  if (code == 0 && options.ends_on_signal && supervisor.told() != 0) code = 128 + supervisor.told();
  if (const int left = guard.finish(); left > 0 && code == 0) {
    supervisor.say(text("the ranks left ", left, left == 1 ? " process" : " processes", " behind: killed"));
    supervisor.output().drain();
  }
  return {code, supervisor.told() != 0};
}

}  // namespace

int run(const Options& options) {
  open_standard_streams();
  for (int restart = 0;; ++restart) {
    const Ended ended = run_once(options, restart);
    if (ended.code == 0 || ended.told || restart == options.restarts) return ended.code;
    std::fprintf(stderr, "lockstep run: exit code %d; starting again (%d of %d)\n", ended.code, restart + 1,
                 options.restarts);
  }
}

}  // namespace lockstep::launch
