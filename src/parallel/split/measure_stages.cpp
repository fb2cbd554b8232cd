// SPDX-License-Identifier: Apache-2.0
#include <malloc.h>
#include <torch/csrc/autograd/autograd.h>

#include <chrono>

#include "lockstep/context/detail/borders.h"
#include "lockstep/context/detail/context.h"
#include "lockstep/context/detail/slices.h"
#include "lockstep/context/draws.h"
#include "lockstep/dense/detail/image_operations.h"
#include "lockstep/numerics/pinned.h"
#include "lockstep/parallel/choose_split.h"
#include "parallel/split/border.h"
#include "parallel/split/slice_helpers.h"

namespace lockstep::parallel {
namespace {

int64_t bytes_in_use() {
  const auto info = mallinfo2();
  return static_cast<int64_t>(info.uordblks + info.hblkhd);
}

/// Between stages: takes the time of the one under way, and the memory that it left behind.
class Meter : public Borders {
 public:
  explicit Meter(std::vector<StageCost>& costs) : costs_(costs) {}

  void come_to(size_t next, size_t stages, Bundle& bundle) override {
    if (next > 0) {
      add_time();
      costs_[next - 1].kept_bytes += std::max<int64_t>(0, bytes_in_use() - bytes_);
    }
    if (next > 0 && next < stages)
      lay_border(bundle, [this, next] {
        add_time();
        running_ = next - 1;
      });
    running_ = std::min(next, stages - 1);
    bytes_ = bytes_in_use();
    began_ = thread_seconds();
  }

  void add_time() {
    const double now = thread_seconds();
    costs_[running_].seconds += now - began_;
    began_ = now;
  }

  /// As Slices::Run.
  void run_slices(int64_t count, const std::function<void(int64_t)>& part) {
    const double before = thread_seconds();
    for (int64_t slice = 0; slice < count; ++slice) part(slice);
    costs_[running_].sliced_seconds += thread_seconds() - before;
    ++costs_[running_].sliced_layers;
  }

 private:
  std::vector<StageCost>& costs_;
  size_t running_ = 0;
  int64_t bytes_ = 0;
  double began_ = 0;
};

}  // namespace

std::vector<StageCost> measure_stages(torch::nn::Module& network, Staged& staged, int64_t slices, uint64_t seed,
                                      const std::function<at::Tensor()>& loss) {
  const ReplicaNumerics numerics;
  std::vector<StageCost> costs;
  for (int pass = 0; pass < 2; ++pass) {
    costs.clear();
    for (const Stage& stage : staged.stages()) costs.push_back({.name = stage.name});
    Meter meter(costs);
    Draws draws{RandomKey{seed}};
    const Slices in(slices,
                    [&](int64_t count, const std::function<void(int64_t)>& part) { meter.run_slices(count, part); });
    const ContextScope context({.draws = &draws,
                                .images = &dense::image_operations(),
                                .slices = slices > 1 ? &in : nullptr,
                                .borders = &meter});
    const at::Tensor value = loss();
    meter.add_time();  // what comes behind the network belongs to its last stage
    torch::autograd::backward({value}, {});
    meter.add_time();
    network.zero_grad(true);
  }
  return costs;
}

double measure_meeting() {
  constexpr int kTimes = 200;
  SliceHelpers helpers(1, 2, false);
  const auto meet = [&] {
    for (int time = 0; time < kTimes; ++time) helpers.run(0, 2, [](int64_t) {});
  };
  meet();
  const auto before = std::chrono::steady_clock::now();
  meet();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - before).count() / kTimes;
}

}  // namespace lockstep::parallel
