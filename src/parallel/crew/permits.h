// SPDX-License-Identifier: Apache-2.0
// Which members of a crew may compute. No threads and no clock: a crew asks under its lock, a forecast in virtual time.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

namespace lockstep::parallel {

/// How a member comes to a part: in its pass forwards or backwards, or when that has come back, for gradients of its
/// weights. For those any part's permit will do.
enum class Way : uint8_t { forwards, backwards, late };
/// How a member's pass comes back from another process: see Permits::come_inside.
enum class Pass : uint8_t { begins, goes_on, keeps_nothing };

/// Permits of each part of a network, and who has or wants one. Members that could go on are handed one each. First who
/// comes to a part, as the parts ahead have work by it: a part has no more members in flight than there are permits
/// from it on, and one in flight that waits for the others does not count. Then who goes backwards, and last who has
/// nothing left to compute but gradients of weights: with those members no more are in flight than in all parts. Among
/// equals, whoever computed longest before the last meeting. What is long begins early, so that those who keep a permit
/// to the end come to it at nearly the same time.
class Permits {
 public:
  using Duration = std::chrono::steady_clock::duration;

  static constexpr int64_t kNobody = -1;

  /// `permits`: of each part. `ahead` and `behind`: of parts that come after and before them in other processes, where
  /// members in flight may be too.
  Permits(int64_t members, const std::vector<int64_t>& permits, int64_t ahead = 0, int64_t behind = 0);

  int64_t parts() const { return static_cast<int64_t>(limits_.size()); }
  /// The part whose permit a member has or wants.
  int64_t part_of(int64_t member) const { return where_[member]; }
  /// Whether what its pass has made is still needed.
  bool is_in_flight(int64_t member) const { return kept_[member] > 0; }
  /// Whether it still waits for a permit.
  bool wants(int64_t member) const { return wants_[member]; }

  /// A member begins to compute. False: no permit is free, and it wants one.
  bool enter(int64_t member);
  /// A member has done all it had to do. Who is handed its permit; kNobody: it is free.
  int64_t leave(int64_t member);
  /// A member in a pass lets its permit go and wants one of this part, or any where it is late.
  void exchange(int64_t member, int64_t part, Way way);
  /// A member lets its permit go, to wait for a part in another process.
  void go_outside(int64_t member);
  /// It wants a permit again, of the one part that is here: its pass begins here, goes on, or is none that keeps
  /// activations.
  void come_inside(int64_t member, Pass pass);
  /// Any number of members may be in flight.
  void let_all_come();

  /// Nothing of its pass is kept any longer.
  void end_pass(int64_t member);

  /// A member begins to wait for the others. True where that makes room: then see take_free().
  bool begin_to_wait(int64_t member);
  /// Who is to be handed the permit of a member that waits; kNobody where none wants it.
  int64_t successor(int64_t member) noexcept { return next_member(where_[member]); }
  /// It has handed its permit on, and sleeps until what it waits for has come.
  void sleep(int64_t member, bool sleeps) { sleeps_[member] = sleeps; }
  bool sleeps(int64_t member) const { return sleeps_[member]; }
  /// In place of a permit that a member has handed on, so that it can help with the work that comes when all have met.
  bool take_spare(int64_t member);
  /// What a member waited for has come.
  void stop_waiting(int64_t member);
  /// All have met and their work is done.
  void end_meeting();

  /// Hands out what is free, and says to whom.
  std::vector<int64_t> take_free();

  /// A member computed for so long before a meeting.
  void add_time(int64_t member, Duration computed);

 private:
  static constexpr int64_t kAnyPart = -1, kOutside = -2;

  int64_t members() const { return static_cast<int64_t>(wants_.size()); }
  int64_t in_no_pass() const { return parts() == 1 ? 0 : kAnyPart; }
  /// Members in flight in a part, and those that are late with its weights.
  struct Load {
    int64_t in_flight = 0, late = 0;
  };
  bool is_counted(int64_t member, int64_t part) const noexcept;
  Load load_of(int64_t part) const noexcept;
  bool may_go_on(int64_t member, int64_t part, const Load& load) const noexcept;
  int urgency(int64_t member) const noexcept;
  bool is_before(int64_t member, int64_t other) const noexcept;
  bool is_past(int64_t member, int64_t part) const noexcept;
  int64_t next_member(int64_t part) noexcept;

  std::vector<int64_t> limits_;  // [part] how many members may be in flight there
  int64_t most_;                 // with those that are late
  std::vector<int64_t> free_;    // [part]
  std::vector<bool> sleeps_;     // until what it waits for has come, without a permit
  std::vector<bool> wants_;      // a permit
  std::vector<int64_t> where_;   // the part whose permit a member has or wants
  std::vector<bool> comes_;      // to the part that it wants a permit of, forwards
  std::vector<bool> returns_;    // its pass goes backwards
  std::vector<int64_t> kept_;    // parts, the first ones, that it is in flight in
  std::vector<int64_t> late_;    // part whose weights' gradients it computes, when it has gone back; or kNobody
  std::vector<bool> waits_;      // for the others
  std::vector<Duration> took_;   // to come to its last meetings
};

}  // namespace lockstep::parallel
