// SPDX-License-Identifier: Apache-2.0
#include "lockstep/train/survive.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <chrono>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/parallel/replica_error.h"
#include "lockstep/report/format.h"
#include "lockstep/train/job.h"

namespace lockstep::train {
namespace {

using Clock = std::chrono::steady_clock;

struct Largest {
  int64_t value;
  int rank;  // the first that has it
  bool is_everybodys;
};

// Collective. The largest of one number of each process.
Largest largest_of(int64_t mine, const comm::Group& group) {
  const auto numbers = at::zeros({group.size()}, at::kLong);
  group.all_gather(numbers, at::full({1}, mine, at::kLong)).wait();
  const std::span<const int64_t> all(numbers.const_data_ptr<int64_t>(), group.size());
  const auto largest = std::ranges::max_element(all);
  return {.value = *largest,
          .rank = static_cast<int>(largest - all.begin()),
          .is_everybodys = std::ranges::count(all, *largest) == group.size()};
}

// Collective. Processes that were lost in different moments of a copy have different ones: the newest counts, and who
// has an older one, or none, is given it.
void agree_on_copy(std::optional<run::Checkpoint>& mine, const comm::Group& group) {
  const auto newest = largest_of(mine ? mine->cursor.step : -1, group);
  if (newest.value < 0 || newest.is_everybodys) return;
  const std::string bytes = broadcast_text(group.rank() == newest.rank ? bytes_of(*mine) : "", group, newest.rank);
  if (!mine || mine->cursor.step < newest.value)
    mine = run::load_checkpoint(std::as_bytes(std::span(bytes)), text("the copy of rank ", newest.rank));
}

// Collective. What one of the processes says, where any does: the one that writes may be a newcomer.
std::string from_who_knows(const std::string& mine, const comm::Group& group) {
  const auto longest = largest_of(std::ssize(mine), group);
  return longest.value == 0 ? "" : broadcast_text(mine, group, longest.rank);
}

// None where the others have ended, with all done. Where they don't come nobody was lost, so that meeting again would
// not help: that is an error.
std::optional<comm::Group> join_unless_done(comm::Membership& membership) {
  try {
    return membership.join();
  } catch (const comm::CommError&) {
    if (membership.is_done()) return std::nullopt;
    throw;
  }
}

// What changed from one generation to the next, in the launcher's ranks.
std::string change_of(const std::vector<int>& before, const std::vector<int>& now) {
  std::vector<int> lost, come;
  std::ranges::set_difference(before, now, std::back_inserter(lost));
  std::ranges::set_difference(now, before, std::back_inserter(come));
  std::string out;
  const auto add = [&](const std::vector<int>& ranks, const char* what) {
    if (ranks.empty()) return;
    out += text(out.empty() ? "" : ", ", ranks.size() == 1 ? "rank " : "ranks ");
    for (const int& rank : ranks) out += text(&rank == ranks.data() ? "" : " and ", rank);
    out += what;
  };
  add(lost, lost.size() == 1 ? " was lost" : " were lost");
  add(come, " came in addition");
  return out.empty() ? "the processes met again" : out;
}

}  // namespace

bool is_loss(const std::exception& error) {
  if (dynamic_cast<const comm::CommError*>(&error) != nullptr) return true;
  const auto* replica = dynamic_cast<const parallel::ReplicaError*>(&error);
  if (replica == nullptr || !replica->cause()) return false;
  try {
    std::rethrow_exception(replica->cause());
  } catch (const std::exception& cause) {
    return is_loss(cause);
  } catch (...) {
    return false;
  }
}

std::string folder_of(const run::Checkpoint& copy) {
  const archive::Value value{copy.extra};
  return value.at("out").as<std::string>("out");
}

Outcome train_surviving(comm::Membership& membership, const MakeTrainer& make) {
  std::optional<run::Checkpoint> copy;
  std::vector<int> before;
  int64_t done = 0;
  Clock::time_point noticed = Clock::now();
  for (;;) {
    const std::optional<comm::Group> joined = join_unless_done(membership);
    if (!joined) return {};
    const comm::Group& group = *joined;
    try {
      agree_on_copy(copy, group);
      const auto trainer = make(group, copy);
      trainer->survive(membership);
      std::string event;
      if (!before.empty()) {
        const double seconds = std::chrono::duration<double>(Clock::now() - noticed).count();
        const int64_t from = copy ? copy->cursor.step : 0;
        done = std::max(done, from);  // the copy of another process may be a step ahead
        const int64_t again = done - from;
        const auto processes = std::ssize(membership.ranks());
        event = text(change_of(before, membership.ranks()), " after step ", done, "; ", processes,
                     processes == 1 ? " process goes" : " processes go", " on ", report::fixed(seconds, 2),
                     " s later, ", again, again == 1 ? " step" : " steps", " done again");
      }
      event = from_who_knows(event, group);
      if (!event.empty()) trainer->say_event(event);
      before = membership.ranks();
      const auto keep = [&] {
        if (auto newer = trainer->newest_copy()) copy = std::move(newer);
        done = std::max(done, trainer->steps_done());
        noticed = Clock::now();
      };
      Outcome outcome;
      try {
        outcome = trainer->run();
      } catch (...) {
        keep();
        throw;
      }
      keep();
      if (outcome.regroups) continue;
      if (group.rank() == 0) membership.say_done();
      try {
        group.finish();
      } catch (const comm::CommError&) {
        if (!membership.is_done()) throw;  // the one that writes was lost before it had written all
      }
      return outcome;
    } catch (const std::exception& error) {
      if (!is_loss(error)) throw;
      if (membership.is_done()) return {};  // the others have finished meanwhile
      noticed = Clock::now();
      log_info("survive: ", error.what());
    }
  }
}

}  // namespace lockstep::train
