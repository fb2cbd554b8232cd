// SPDX-License-Identifier: Apache-2.0
#include "parallel/forecast/virtual_time.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace lockstep::parallel {
namespace {

// Work of which less is left is done: rounding alone leaves that.
constexpr double kNothing = 1e-12;

}  // namespace

void VirtualTime::run() {
  while (!events_.empty()) {
    Entry entry = events_.top();
    events_.pop();
    now_ = std::max(now_, entry.when);
    entry.event();
  }
}

double VirtualCores::rate(const Task& task) const {
  return std::min(1.0, cores_ / threads_) / slower_(task.use, threads_);
}

// Takes off what has been computed since.
void VirtualCores::settle() {
  const double passed = time_.now() - settled_;
  settled_ = time_.now();
  if (passed > 0)
    for (Task& task : tasks_) task.left -= passed * rate(task);
}

void VirtualCores::run(double seconds, CoreUse use, int64_t threads, VirtualTime::Event done) {
  settle();
  tasks_.push_back({seconds, use, threads, std::move(done)});
  threads_ += static_cast<double>(threads);
  plan_next();
}

void VirtualCores::plan_next() {
  ++version_;
  if (tasks_.empty()) return;
  double soonest = std::numeric_limits<double>::infinity();
  for (const Task& task : tasks_) soonest = std::min(soonest, std::max(0.0, task.left) / rate(task));
  time_.at(time_.now() + soonest, [this, version = version_] {
    if (version != version_) return;
    settle();
    std::vector<VirtualTime::Event> done;
    std::erase_if(tasks_, [&](Task& task) {
      if (task.left > kNothing) return false;
      threads_ -= static_cast<double>(task.threads);
      done.push_back(std::move(task.done));
      return true;
    });
    plan_next();
    for (const auto& event : done) event();
  });
}

}  // namespace lockstep::parallel
