// SPDX-License-Identifier: Apache-2.0
#include "lockstep/parallel/detail/surviving_work.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iterator>
#include <optional>
#include <span>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/comm/error.h"
#include "lockstep/parallel/detail/broadcast_text.h"
#include "lockstep/parallel/replica_error.h"

namespace lockstep::parallel {
namespace {

using Clock = std::chrono::steady_clock;

// So often the same processes meet again without a step more.
constexpr int kInVain = 5;

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

// Collective. What one of the processes says, where any does: the one that writes may be a newcomer.
std::string from_who_knows(const std::string& mine, const comm::Group& group) {
  const auto longest = largest_of(std::ssize(mine), group);
  return longest.value == 0 ? "" : broadcast_text(group, mine, longest.rank);
}

// None where the others have ended, with all done.
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

struct Progress {
  int64_t done;    // steps, before the loss
  int64_t copied;  // those that the copy has
  Clock::time_point noticed;
};

std::string event_of(const std::vector<int>& before, const std::vector<int>& now, const Progress& progress) {
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%.2f",
                std::chrono::duration<double>(Clock::now() - progress.noticed).count());
  const int64_t again = progress.done - progress.copied;
  return text(change_of(before, now), " after step ", progress.done, "; ", now.size(),
              now.size() == 1 ? " process goes" : " processes go", " on ", seconds, " s later, ", again,
              again == 1 ? " step" : " steps", " done again");
}

}  // namespace

bool is_loss(const std::exception& error) {
  if (dynamic_cast<const comm::CommError*>(&error) != nullptr) return true;
  const auto* replica = dynamic_cast<const ReplicaError*>(&error);
  if (replica == nullptr || !replica->cause()) return false;
  try {
    std::rethrow_exception(replica->cause());
  } catch (const std::exception& cause) {
    return is_loss(cause);
  } catch (...) {
    return false;
  }
}

bool SurvivingWork::run(comm::Membership& membership) {
  std::vector<int> before, failed_with;
  int64_t done = 0, failed_at = -1;
  int in_vain = 0;
  Clock::time_point noticed = Clock::now();
  // Processes that were lost in different moments of a copy have different ones: the newest counts, and who has an
  // older one, or none, is given it.
  const auto agree_on_copy = [&](const comm::Group& group) {
    const auto newest = largest_of(copied_steps(), group);
    if (newest.value < 0 || newest.is_everybodys) return;
    const std::string bytes = broadcast_text(group, group.rank() == newest.rank ? copy_as_bytes() : "", newest.rank);
    if (copied_steps() < newest.value) take_copy(bytes, text("the copy of rank ", newest.rank));
  };
  for (;;) {
    const std::optional<comm::Group> group = join_unless_done(membership);
    if (!group) return false;
    try {
      agree_on_copy(*group);
      prepare(*group);
      std::string event;
      if (!before.empty()) {
        const int64_t copied = std::max<int64_t>(0, copied_steps());
        done = std::max(done, copied);  // the copy of another process may be a step ahead
        event = event_of(before, membership.ranks(), {.done = done, .copied = copied, .noticed = noticed});
      }
      event = from_who_knows(event, *group);
      if (!event.empty()) say(event);
      before = membership.ranks();
      const bool ended = work();
      noticed = Clock::now();
      end();
      done = std::max(done, steps_done());
      if (!ended) continue;
      if (group->rank() == 0) membership.say_done();
      try {
        group->finish();
      } catch (const comm::CommError&) {
        if (!membership.is_done()) throw;  // the one that writes was lost before it had written all
      }
      return true;
    } catch (const std::exception& error) {
      end();
      done = std::max(done, steps_done());
      if (!is_loss(error)) throw;
      if (membership.is_done()) return false;  // the others have finished meanwhile
      in_vain = membership.ranks() == failed_with && done == failed_at ? in_vain + 1 : 0;
      if (in_vain == kInVain) throw;
      failed_with = membership.ranks();
      failed_at = done;
      noticed = Clock::now();
      log_info("survive: ", error.what());
    }
  }
}

}  // namespace lockstep::parallel
