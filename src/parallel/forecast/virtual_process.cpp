// SPDX-License-Identifier: Apache-2.0
#include "parallel/forecast/virtual_process.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace lockstep::parallel {
namespace {

Permits::Duration as_duration(double seconds) {
  return std::chrono::duration_cast<Permits::Duration>(std::chrono::duration<double>(seconds));
}

}  // namespace

VirtualProcess::VirtualProcess(VirtualTime& time, ProcessWork work, VirtualCores& cores, VirtualLine* line,
                               std::function<void(int64_t)> on_bucket, std::function<void()> on_met)
    : time_(time),
      work_(std::move(work)),
      cores_(cores),
      line_(line),
      on_bucket_(std::move(on_bucket)),
      on_met_(std::move(on_met)),
      permits_(work_.members, work_.permits, work_.ahead, work_.behind),
      members_(work_.members),
      stays_(work_.members, false),
      helps_(work_.members, false),
      pending_(work_.post.size(), 0) {
  if (line_ != nullptr)
    line_->on_delivery(work_.part, [this](int64_t member, Handover what) { deliver(member, what); });
}

void VirtualProcess::begin() {
  steps_.emplace_back();
  for (int64_t& pending : pending_) pending = work_.members;
  std::vector<int64_t> computing;
  for (int64_t m = 0; m < work_.members; ++m)
    if (permits_.enter(m)) computing.push_back(m);
  for (const int64_t member : computing) begin_step(member);
}

double VirtualProcess::share(const Member& member, int64_t number) const {
  return work_.share ? work_.share(member.step, number) : 1;
}

// Of its backward pass: what is not put off.
double VirtualProcess::first_half(int64_t part) const {
  return work_.backward[part] - std::reduce(work_.late[part].begin(), work_.late[part].end(), 0.0);
}

// Counts by the time that it takes, not by the work that it is: others may slow it.
void VirtualProcess::run(double seconds, CoreUse use, double ProcessTimes::*counted, VirtualTime::Event done) {
  const int64_t threads = use == CoreUse::pass ? work_.sharers : 1;
  cores_.run(seconds, use, threads, [this, counted, began = time_.now(), done = std::move(done)] {
    steps_.back().*counted += time_.now() - began;
    done();
  });
}

void VirtualProcess::begin_step(int64_t number) {
  Member& member = members_[number];
  member.position = 0;
  member.late_part = parts() - 1;
  member.next_late.assign(parts(), 0);
  member.began = time_.now();
  run(work_.data, CoreUse::pass, &ProcessTimes::data,
      [this, number] { run(work_.turn, CoreUse::pass, &ProcessTimes::turn, [this, number] { advance(number); }); });
}

// To the position that it is at: over a border, if there is one in front of it.
void VirtualProcess::advance(int64_t number) {
  Member& member = members_[number];
  if (member.position == 2 * parts()) {
    if (begin_late(number)) return;
    if (parts() > 1 || line_ != nullptr) {
      permits_.end_pass(number);
      resume_all(permits_.take_free());
      look_again();
    }
    return meet(number);
  }
  if (line_ != nullptr) return come_to_part(number);
  if (parts() == 1 || member.position == parts()) return compute(number);
  member.at_border = true;
  permits_.exchange(number, part_at(member.position), member.position < parts() ? Way::forwards : Way::backwards);
  resume_all(permits_.take_free());
  look_again();
}

// As ProcessPipeline::Member goes through its stages, forwards and, with the loss of the network's output, backwards.
void VirtualProcess::come_to_part(int64_t number) {
  Member& member = members_[number];
  const bool first = work_.part == 0, last = work_.part + 1 == line_->parts();
  if (member.position == 1) return last ? compute(number) : await(number, Handover::output, Pass::goes_on);
  if (!first) return await(number, Handover::handed_on, Pass::begins);
  member.at_border = true;
  permits_.exchange(number, 0, Way::forwards);
  resume_all(permits_.take_free());
  look_again();
}

void VirtualProcess::await(int64_t number, Handover what, Pass pass) {
  Member& member = members_[number];
  permits_.add_time(number, as_duration(time_.now() - member.began));
  member.awaited = what;
  member.pass = pass;
  member.at_border = true;
  permits_.go_outside(number);
  resume_all(permits_.take_free());
  look_again();
  if (member.here[static_cast<size_t>(what)] > 0) come_inside(number);
}

void VirtualProcess::deliver(int64_t number, Handover what) {
  Member& member = members_[number];
  ++member.here[static_cast<size_t>(what)];
  if (member.awaited == what) come_inside(number);
}

void VirtualProcess::come_inside(int64_t number) {
  Member& member = members_[number];
  --member.here[static_cast<size_t>(member.awaited)];
  member.received = std::exchange(member.awaited, Handover::none);
  permits_.come_inside(number, member.pass);
  resume_all(permits_.take_free());
  look_again();
}

void VirtualProcess::resume_all(const std::vector<int64_t>& members) {
  for (const int64_t member : members) resume(member);
}

void VirtualProcess::resume(int64_t number) {
  Member& member = members_[number];
  member.began = time_.now();
  if (!member.at_border) return begin_step(number);
  member.at_border = false;
  if (member.position == 2 * parts()) return compute_late(number, number, member.late_part);
  if (member.received == Handover::output) return await(number, Handover::gradients, Pass::goes_on);
  compute(number);
}

void VirtualProcess::compute(int64_t number) {
  Member& member = members_[number];
  member.mark = 0;
  member.done = 0;
  if (member.position >= parts()) {
    member.end = first_half(part_at(member.position));
    return go_backward(number);
  }
  run(work_.forward[part_at(member.position)] * share(member, number), CoreUse::pass, &ProcessTimes::forward,
      [this, number] { finish_position(number); });
}

// From one gradient that completes a part of a bucket to the next.
void VirtualProcess::go_backward(int64_t number) {
  Member& member = members_[number];
  const bool is_late = member.position == 2 * parts();
  const int64_t part = is_late ? member.late_part : part_at(member.position);
  const auto& late = work_.late[part];
  const bool ends_part = late.empty() || (is_late && member.late_layer + 1 == late.size());
  const auto* marks = work_.marks.empty() || is_late == late.empty() ? nullptr : &work_.marks[part];
  const bool last =
      marks == nullptr || member.mark == marks->size() || (!ends_part && (*marks)[member.mark].first > member.end);
  const double until = last ? member.end : (*marks)[member.mark].first;
  const int64_t whose = is_late ? member.late_member : number;
  const double seconds = std::max(0.0, until - member.done) * share(members_[whose], whose);
  member.done = std::max(member.done, until);
  run(seconds, CoreUse::pass, &ProcessTimes::backward, [this, number, part, last, is_late] {
    if (last) return is_late ? end_late(number) : finish_position(number);
    pass_mark(number, work_.marks[part][members_[number].mark++].second);
  });
}

// As end_backward() of a pipeline's member, whose layers come one by one.
bool VirtualProcess::begin_late(int64_t number) {
  Member& member = members_[number];
  while (member.late_part >= 0 && member.next_late[member.late_part] == work_.late[member.late_part].size())
    --member.late_part;
  if (member.late_part < 0) return member.awaits_helpers = member.helped > 0;
  member.at_border = true;
  permits_.exchange(number, member.late_part, Way::late);
  resume_all(permits_.take_free());
  look_again();
  return true;
}

// Helpers may have taken the last one while it waited for a permit.
void VirtualProcess::compute_late(int64_t number, int64_t owner, int64_t part) {
  Member& member = members_[number];
  const auto& layers = work_.late[part];
  size_t& next = members_[owner].next_late[part];
  if (next == layers.size()) return advance(number);
  member.late_member = owner;
  member.late_part = part;
  member.late_layer = next++;
  const auto layer = layers.begin() + static_cast<ptrdiff_t>(member.late_layer);
  member.done = std::accumulate(layers.begin(), layer, first_half(part));
  member.end = member.done + *layer;
  member.mark = 0;
  if (!work_.marks.empty() && member.late_layer > 0)
    for (const auto& marks = work_.marks[part]; member.mark < marks.size() && marks[member.mark].first <= member.done;)
      ++member.mark;
  go_backward(number);
}

void VirtualProcess::end_late(int64_t number) {
  const int64_t owner = members_[number].late_member;
  if (owner == number) return advance(number);
  helps_[number] = false;
  if (--members_[owner].helped == 0 && std::exchange(members_[owner].awaits_helpers, false)) advance(owner);
  look_again();
}

// As Crew::begin_to_help.
void VirtualProcess::help(int64_t number) {
  for (Member& owner : members_)
    for (int64_t part = parts(); part-- > 0;)
      if (owner.position >= 2 * parts() - part && owner.next_late[part] < work_.late[part].size()) {
        helps_[number] = true;
        ++owner.helped;
        return compute_late(number, &owner - members_.data(), part);
      }
}

// The replica that brings the last gradient adds up those of this process, and the backward pass goes on.
void VirtualProcess::pass_mark(int64_t number, int64_t bucket) {
  if (--pending_[bucket] > 0) return go_backward(number);
  run(work_.post[bucket], CoreUse::memory, &ProcessTimes::post, [this, number, bucket] {
    on_bucket_(bucket);
    go_backward(number);
  });
}

void VirtualProcess::finish_position(int64_t number) {
  Member& member = members_[number];
  if (line_ != nullptr && member.position == 0) line_->send_forward(work_.part, number, share(member, number));
  if (line_ != nullptr && member.position == 1) line_->send_backward(work_.part, number, share(member, number));
  ++member.position;
  advance(number);
}

void VirtualProcess::meet(int64_t number) {
  permits_.add_time(number, as_duration(time_.now() - members_[number].began));
  if (permits_.begin_to_wait(number)) {
    resume_all(permits_.take_free());
    look_again();
  }
  stays_[number] = true;
  if (++arrived_ < work_.members) return wait_in_meeting(number);
  arrived_ = 0;
  met_ = true;
  steps_.back().last_pass = time_.now();
  on_met_();
}

// As Crew::meet: who waits hands its permit on where somebody wants it, and may take a spare one in its place.
void VirtualProcess::wait_in_meeting(int64_t number) {
  for (;;) {
    const int64_t next = permits_.successor(number);
    if (next == Permits::kNobody) return help(number);
    const bool stays = permits_.take_spare(number);
    permits_.sleep(number, !stays);
    stays_[number] = stays;
    resume(next);
    if (!stays) return;
  }
}

// Somebody may want a permit now that a waiting member holds.
void VirtualProcess::look_again() {
  if (looks_again_) return;
  looks_again_ = true;
  time_.at(time_.now(), [this] {
    looks_again_ = false;
    for (int64_t m = 0; !met_ && m < work_.members; ++m)
      if (stays_[m] && !helps_[m]) wait_in_meeting(m);
  });
}

void VirtualProcess::update() {
  steps_.back().summed = time_.now();
  const int64_t staying = std::ranges::count(stays_, true);
  updating_ = std::max<int64_t>(1, std::min(staying * work_.sharers, work_.update_tasks));
  const double each = work_.update / static_cast<double>(updating_);
  for (int64_t task = updating_; task > 0; --task)
    run(each, CoreUse::memory, &ProcessTimes::update, [this] {
      if (--updating_ == 0) finish();
    });
}

void VirtualProcess::finish() {
  steps_.back().end = time_.now();
  if (static_cast<int64_t>(steps_.size()) == work_.steps) return;
  steps_.push_back({.begin = time_.now()});
  for (int64_t& pending : pending_) pending = work_.members;
  met_ = false;
  permits_.end_meeting();
  std::vector<int64_t> computing;
  for (int64_t m = 0; m < work_.members; ++m) {
    ++members_[m].step;
    if (stays_[m]) computing.push_back(m);
    stays_[m] = false;
  }
  const std::vector<int64_t> chosen = permits_.take_free();
  for (const int64_t member : computing) begin_step(member);
  resume_all(chosen);
}

}  // namespace lockstep::parallel
