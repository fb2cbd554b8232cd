// SPDX-License-Identifier: Apache-2.0
#include "parallel/crew/permits.h"

#include <numeric>

namespace lockstep::parallel {
namespace {

// How many of its last meetings say how long a member computes for the next one.
constexpr int kMemory = 8;

}  // namespace

Permits::Permits(int64_t members, const std::vector<int64_t>& permits, int64_t ahead, int64_t behind)
    : most_(std::accumulate(permits.begin(), permits.end(), ahead + behind)),
      free_(permits),
      sleeps_(members, false),
      wants_(members, false),
      where_(members, 0),
      comes_(members, false),
      returns_(members, false),
      kept_(members, 0),
      late_(members, kNobody),
      waits_(members, false),
      took_(members, Duration::zero()) {
  for (auto part = permits.begin(); part != permits.end(); ++part)
    limits_.push_back(std::accumulate(part, permits.end(), ahead));
}

// Whether it counts as in flight there.
bool Permits::is_counted(int64_t member, int64_t part) const noexcept {
  return kept_[member] > part && late_[member] == kNobody && !waits_[member];
}

Permits::Load Permits::load_of(int64_t part) const noexcept {
  Load load;
  for (int64_t m = 0; m < members(); ++m) {
    load.late += late_[m] == part;
    load.in_flight += is_counted(m, part);
  }
  return load;
}

// Whether it can use a permit of this part, and no limit keeps it from that: itself it does not count.
bool Permits::may_go_on(int64_t member, int64_t part, const Load& load) const noexcept {
  if (!wants_[member]) return false;
  if (where_[member] == kAnyPart) return true;
  if (where_[member] != part) return false;
  if (!comes_[member]) return true;
  const int64_t in_flight = load.in_flight - is_counted(member, part), late = load.late - (late_[member] == part);
  return in_flight < limits_[part] && in_flight + late < most_;
}

// Who comes has the limits against it: activations wait no longer where somebody goes back before. Who is in no pass,
// or late, comes last.
int Permits::urgency(int64_t member) const noexcept {
  if (where_[member] == kAnyPart || late_[member] != kNobody) return 0;
  return comes_[member] ? 2 : 1;
}

bool Permits::is_before(int64_t member, int64_t other) const noexcept {
  const int mine = urgency(member), others = urgency(other);
  return mine != others ? mine > others : took_[member] > took_[other];
}

// Whether its pass comes to this part no more before all meet.
bool Permits::is_past(int64_t member, int64_t part) const noexcept {
  return waits_[member] || (returns_[member] && kept_[member] > 0 && kept_[member] <= part);
}

// The member which is to be handed a permit of this part; kNobody where none wants one. Who holds the crew's lock only
// chooses it and wakes it afterwards: whom that wakes may take this core at once, for milliseconds in which all others
// would wait for the lock.
int64_t Permits::next_member(int64_t part) noexcept {
  const Load load = load_of(part);
  int64_t next = kNobody;
  for (int64_t m = 0; m < members(); ++m)
    if (may_go_on(m, part, load) && (next == kNobody || is_before(m, next))) next = m;
  if (next == kNobody) return next;
  wants_[next] = false;
  where_[next] = part;
  if (comes_[next]) kept_[next] = part + 1;
  comes_[next] = false;
  return next;
}

bool Permits::enter(int64_t member) {
  for (int64_t part = 0; part < parts(); ++part)
    if (free_[part] > 0) {
      --free_[part];
      where_[member] = part;
      return true;
    }
  // Whoever waits for this member in a meeting holds the permit that it needs.
  wants_[member] = true;
  where_[member] = in_no_pass();
  return false;
}

int64_t Permits::leave(int64_t member) {
  end_pass(member);
  const int64_t next = successor(member);
  if (next == kNobody) ++free_[where_[member]];
  return next;
}

void Permits::exchange(int64_t member, int64_t part, Way way) {
  ++free_[where_[member]];
  wants_[member] = true;
  where_[member] = way == Way::late ? in_no_pass() : part;
  comes_[member] = way == Way::forwards && kept_[member] <= part;  // in a second pass it is in flight already
  returns_[member] = way != Way::forwards;
  late_[member] = way == Way::late ? part : kNobody;
  if (comes_[member]) kept_[member] = part;
  if (returns_[member]) kept_[member] = part + 1;
}

void Permits::go_outside(int64_t member) {
  ++free_[where_[member]];
  where_[member] = kOutside;
}

void Permits::come_inside(int64_t member, Pass pass) {
  wants_[member] = true;
  where_[member] = 0;
  comes_[member] = pass == Pass::begins && kept_[member] == 0;
  returns_[member] = false;
  if (pass == Pass::goes_on) kept_[member] = 1;
  if (pass == Pass::keeps_nothing) kept_[member] = 0;
}

void Permits::end_pass(int64_t member) {
  kept_[member] = 0;
  late_[member] = kNobody;
}

void Permits::let_all_come() {
  for (int64_t& limit : limits_) limit = members();
  most_ = members();
}

bool Permits::begin_to_wait(int64_t member) {
  const bool waited = waits_[member];
  waits_[member] = true;
  return !waited && kept_[member] > 0;
}

bool Permits::take_spare(int64_t member) {
  for (int64_t part = parts() - 1; part > 0; --part) {
    if (free_[part] == 0) continue;
    bool spare = true;
    for (int64_t m = 0; m < members(); ++m) spare &= is_past(m, part);
    if (!spare) continue;
    --free_[part];
    where_[member] = part;
    return true;
  }
  return false;
}

void Permits::stop_waiting(int64_t member) {
  waits_[member] = false;
  if (sleeps_[member]) wants_[member] = true;
  sleeps_[member] = false;
}

void Permits::end_meeting() {
  wants_.swap(sleeps_);  // all have met, so nobody wanted a permit
  for (int64_t m = 0; m < members(); ++m) {
    waits_[m] = false;
    if (wants_[m]) where_[m] = in_no_pass();
  }
}

std::vector<int64_t> Permits::take_free() {
  std::vector<int64_t> chosen;
  for (int64_t part = 0; part < parts(); ++part)
    for (; free_[part] > 0; --free_[part]) {
      const int64_t next = next_member(part);
      if (next == kNobody) break;
      chosen.push_back(next);
    }
  return chosen;
}

void Permits::add_time(int64_t member, Duration computed) {
  if (parts() > 1) return;  // its thread has slept at borders
  took_[member] += (computed - took_[member]) / kMemory;
}

}  // namespace lockstep::parallel
