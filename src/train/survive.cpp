// SPDX-License-Identifier: Apache-2.0
#include "lockstep/train/survive.h"

#include <algorithm>
#include <utility>

#include "lockstep/archive/tensor_file.h"
#include "lockstep/parallel/detail/surviving_work.h"

namespace lockstep::train {
namespace {

class SurvivingTraining final : public parallel::SurvivingWork {
 public:
  SurvivingTraining(comm::Membership& membership, const MakeTrainer& make) : membership_(membership), make_(make) {}

  const Outcome& outcome() const { return outcome_; }

 private:
  int64_t copied_steps() const override { return copy_ ? copy_->cursor.step : -1; }
  std::string copy_as_bytes() const override { return bytes_of(*copy_); }
  void take_copy(const std::string& bytes, const std::string& from) override {
    copy_ = run::load_checkpoint(std::as_bytes(std::span(bytes)), from);
  }
  int64_t steps_done() const override { return done_; }

  void prepare(const comm::Group& group) override {
    trainer_ = make_(group, copy_);
    trainer_->survive(membership_);
  }
  void say(const std::string& event) override { trainer_->say_event(event); }
  bool work() override {
    outcome_ = trainer_->run();
    return !outcome_.regroups;
  }
  void end() override {
    if (!trainer_) return;
    if (auto newer = trainer_->newest_copy()) copy_ = std::move(newer);
    done_ = std::max(done_, trainer_->steps_done());
    trainer_.reset();
  }

  comm::Membership& membership_;
  const MakeTrainer& make_;
  std::optional<run::Checkpoint> copy_;
  std::unique_ptr<Trainer> trainer_;
  Outcome outcome_;
  int64_t done_ = 0;
};

}  // namespace

std::string folder_of(const run::Checkpoint& copy) {
  const archive::Value value{copy.extra};
  return value.at("out").as<std::string>("out");
}

Outcome train_surviving(comm::Membership& membership, const MakeTrainer& make) {
  SurvivingTraining training(membership, make);
  return training.run(membership) ? training.outcome() : Outcome{};
}

}  // namespace lockstep::train
