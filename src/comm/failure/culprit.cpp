// SPDX-License-Identifier: Apache-2.0
#include "comm/failure/culprit.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "comm/failure/bounded.h"
#include "comm/meeting/store_text.h"
#include "lockstep/base/error.h"

namespace lockstep::comm {

FailureReports::FailureReports(c10::intrusive_ptr<c10d::Store> store, int rank, int size)
    : store_(std::move(store)), rank_(rank), members_(size) {
  std::iota(members_.begin(), members_.end(), 0);
}

FailureReports FailureReports::of_subgroup(const std::vector<int>& ranks, const std::string& name) const {
  FailureReports out = *this;
  out.group_ = text(group_, "/", name);
  out.members_.clear();
  for (const int rank : ranks) out.members_.push_back(members_[rank]);
  out.rank_ = static_cast<int>(std::ranges::find(ranks, rank_) - ranks.begin());
  return out;
}

// Where the reports lead to: a rank of the job, and whether it has reported nothing.
int FailureReports::follow(int suspect, bool& ends) const {
  std::vector<int> seen{members_[rank_]};
  for (ends = false; suspect >= 0 && std::ranges::count(seen, suspect) == 0;) {
    const std::string key = text("failed/", suspect);
    ends = !store_->check({key});
    if (ends) return suspect;
    seen.push_back(suspect);
    suspect = std::stoi(text_at(*store_, key));
  }
  return suspect;
}

int FailureReports::ask(int suspect, std::chrono::milliseconds patience) const {
  const int first = suspect < 0 ? -1 : members_[suspect];
  store_->set(text("failed/", members_[rank_]), std::to_string(first));
  const auto until = std::chrono::steady_clock::now() + patience;
  int found = -1;
  bool silent = false;
  for (;; std::this_thread::sleep_for(std::chrono::milliseconds(10))) {
    found = follow(first, silent);
    if (!silent) {  // they suspect each other, or nobody: then one that is silent, if any
      found = first;
      for (const int member : members_)
        if (member != members_[rank_] && !silent && !store_->check({text("failed/", member)})) {
          found = member;
          silent = true;
        }
    }
    if (!silent || std::chrono::steady_clock::now() >= until) break;
  }
  const auto member = std::ranges::find(members_, found);
  const int verdict = member == members_.end() ? suspect : static_cast<int>(member - members_.begin());
  return std::stoi(store_->compareSet(text("verdict", group_), "", std::to_string(verdict)));
}

int FailureReports::find_culprit(int suspect, std::chrono::milliseconds patience) const noexcept {
  try {
    // The store may hang with the process that serves it, so nobody waits for it longer than he can afford.
    const auto verdict =
        within(patience, [reports = *this, suspect, patience] { return reports.ask(suspect, patience * 3 / 4); });
    return verdict.value_or(suspect);
  } catch (...) {
    return suspect;
  }
}

}  // namespace lockstep::comm
