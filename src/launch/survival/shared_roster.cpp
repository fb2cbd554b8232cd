// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "launch/survival/distant_roster.h"
#include "launch/survival/kept_roster.h"

namespace lockstep::launch {
namespace {

// The roster of another host's launcher, and from some moment on perhaps this one's own.
class SharedRoster final : public Roster {
 public:
  SharedRoster(OwnHost own, const std::vector<std::string>& hosts, int port, RosterOptions options)
      : options_(options) {
    auto distant = std::make_unique<DistantRoster>(std::move(own), hosts, port, std::move(options));
    distant_ = distant.get();
    roster_ = std::move(distant);
  }

  std::string lose(int rank) override { return roster_->lose(rank); }
  void expect(int rank, pid_t newcomer) override { roster_->expect(rank, newcomer); }
  void forget(int rank, pid_t newcomer) override { roster_->forget(rank, newcomer); }
  bool has_admitted(int rank, pid_t newcomer) const override { return roster_->has_admitted(rank, newcomer); }
  void look() override {
    roster_->look();
    if (distant_ == nullptr || !(distant_->is_successor() || distant_->is_beginner())) return;
    const bool is_beginner = distant_->is_beginner();
    Succession before = std::exchange(distant_, nullptr)->hand_over();
    const std::set<int> working = before.working;
    const int first = before.own.first, count = before.own.count;
    if (is_beginner) {
      roster_ = std::make_unique<KeptRoster>(std::move(before.own), options_);
      for (int rank = first; rank < first + count; ++rank)
        if (!working.contains(rank)) roster_->lose(rank);
    } else {
      roster_ = std::make_unique<KeptRoster>(std::move(before), options_);
    }
    roster_->look();
  }
  bool has_other_hosts() const override { return roster_->has_other_hosts(); }
  bool is_late() const override { return roster_->is_late(); }
  bool awaits_others(bool ended) const override { return roster_->awaits_others(ended); }
  bool is_too_small() const override { return roster_->is_too_small(); }
  std::optional<DistantEnd> distant_end() const override { return roster_->distant_end(); }
  void end(int exit_code) override { roster_->end(exit_code); }

 private:
  const RosterOptions options_;
  std::unique_ptr<Roster> roster_;
  DistantRoster* distant_;  // where it is that one
};

}  // namespace

std::unique_ptr<Roster> share_roster(OwnHost own, const std::vector<std::string>& hosts, int port,
                                     RosterOptions options) {
  return std::make_unique<SharedRoster>(std::move(own), hosts, port, std::move(options));
}

}  // namespace lockstep::launch
