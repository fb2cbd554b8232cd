// SPDX-License-Identifier: Apache-2.0
// The loader against what one would write by hand with tensors: at::index_select on images that were made float before.
//
// Both deliver an epoch in a random order to one consumer, 256 images at a time in 8 shares. The loader starts from
// bytes (a quarter of the memory) and normalises. What an image costs is told in processor time, which what else the
// machine does changes little, with everything on one thread. Then, by the clock on the wall, with one worker: how fast
// the loader is for a consumer that does nothing, and what one waits that computes for 5 ms a batch. Last, what an
// image costs that stays bytes, as for a GPU.
//
// Then what a room's points cost, in processor time too: to make them, and to put them on a grid.
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>

#include <time.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/cloud.h"
#include "lockstep/data/loader.h"
#include "lockstep/numerics/random.h"
#include "support/interleave.h"
#include "support/program.h"

namespace lockstep::data {
namespace {

constexpr int64_t kBatch = 256, kReplicas = 8;

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

/// The processor time of a call.
template <class Call>
double processor_seconds_of(const Call& call) {
  const double begin = processor_seconds();
  call();
  return processor_seconds() - begin;
}

struct Work {
  std::string name;
  std::vector<int64_t> shape;
  std::string transforms;
  int64_t images;
  Layout layout = Layout::contiguous;
};

/// Reads one value of each share, as whoever uses it would at least.
void use(const at::Tensor& inputs, double& sum) {
  sum += static_cast<const uint8_t*>(inputs.const_data_ptr())[0];
}

/// One epoch through the loader; returns seconds a batch, computing left out.
double with_loader(Loader& loader, double compute_seconds) {
  const int64_t batches = loader.batches_per_epoch();
  double sum = 0, computed = 0;
  const auto begin = Clock::now();
  for (int64_t step = 0; step < batches; ++step) {
    for (int64_t replica = 0; replica < kReplicas; ++replica) use(loader.next(replica).inputs, sum);
    if (compute_seconds == 0) continue;
    const auto start = Clock::now();
    while (seconds_since(start) < compute_seconds) sum += 1e-9;
    computed += seconds_since(start);
  }
  require(sum > -1e30, "data_bench", "the sum is ", sum);
  return (seconds_since(begin) - computed) / static_cast<double>(batches);
}

double with_index_select(const at::Tensor& images, const at::Tensor& targets, RandomKey key) {
  const int64_t size = images.size(0), batches = (size + kBatch - 1) / kBatch;
  const at::Tensor order = permutation_(at::empty({size}, at::kLong), key, size);
  double sum = 0;
  const auto begin = Clock::now();
  for (int64_t step = 0; step < batches; ++step) {
    const at::Tensor ids = order.narrow(0, step * kBatch, std::min(kBatch, size - step * kBatch));
    for (const at::Tensor& share : ids.chunk(kReplicas)) {
      use(images.index_select(0, share), sum);
      sum += static_cast<double>(targets.index_select(0, share).const_data_ptr<int64_t>()[0]);
    }
  }
  require(sum > -1e30, "data_bench", "the sum is ", sum);
  return seconds_since(begin) / static_cast<double>(batches);
}

nlohmann::json measure(const Work& work, int rounds) {
  std::vector<int64_t> sizes{work.images};
  sizes.insert(sizes.end(), work.shape.begin(), work.shape.end());
  const at::Tensor bytes = (uniform_(at::empty(sizes), RandomKey{1}) * 256).to(at::kByte);
  const at::Tensor targets = at::arange(work.images).remainder(10);
  const at::Tensor floats = (bytes.to(at::kFloat).div_(255) - 0.5).div_(0.3);
  const auto dataset = make_dataset("bytes", bytes, targets);
  LoaderOptions options{
      .batch = kBatch, .replicas = kReplicas, .transforms = Transforms::parse(work.transforms), .layout = work.layout};
  const Order order = Order::shuffled(work.images, 1);
  Loader ahead(dataset, order, options), busy(dataset, order, options);
  options.workers = 0;
  Loader alone(dataset, order, options);
  options.bytes = true;
  Loader kept(dataset, order, options);
  uint64_t epoch = 0;
  const auto seconds = bench::interleave(
      rounds,
      {[&] { return with_loader(ahead, 0); }, [&] { return processor_seconds_of([&] { with_loader(alone, 0); }); },
       [&] { return processor_seconds_of([&] {
               with_index_select(floats, targets, RandomKey{2, epoch++});
             }); },
       [&] { return with_loader(busy, 5e-3); }, [&] { return processor_seconds_of([&] { with_loader(kept, 0); }); }});
  const double per_second = kBatch / median(seconds[0]);
  const auto microseconds = [&](size_t contender) {
    return median(seconds[contender]) / static_cast<double>(work.images) * 1e6;
  };
  const double speedup = bench::ratio(seconds[2], seconds[1]);
  const double waited = median(seconds[3]) / (median(seconds[3]) + 5e-3);
  std::printf(
      "%-34s %5.2f us an image, index_select %5.2f us (ratio %.2f); %5.2f M images/s; 5 ms steps wait %.2f %%; "
      "bytes %.2f us\n",
      work.name.c_str(), microseconds(1), microseconds(2), speedup, per_second / 1e6, 100 * waited, microseconds(4));
  std::fflush(stdout);
  return {{"work", work.name},
          {"cpu_us_per_image", microseconds(1)},
          {"cpu_us_per_image_index_select", microseconds(2)},
          {"cpu_us_per_image_as_bytes", microseconds(4)},
          {"speedup_over_index_select", speedup},
          {"images_per_second", per_second},
          {"waiting_share_of_5_ms_steps", waited}};
}

nlohmann::json measure_clouds(int rounds) {
  const auto rooms =
      std::dynamic_pointer_cast<const CloudDataset>(open_dataset("rooms", Subset::train, {.voxel = 0.05}));
  std::vector<Cloud> clouds;
  double points = 0;
  for (int64_t id = 0; id < 8; ++id) points += static_cast<double>(clouds.emplace_back(rooms->read_cloud(id)).size());
  const auto each = [](const auto& call) {
    return processor_seconds_of([&] {
      for (int64_t id = 0; id < 8; ++id) call(id);
    });
  };
  const auto seconds =
      bench::interleave(rounds, {[&] { return each([&](int64_t id) { rooms->read_cloud(id); }); },
                                 [&] { return each([&](int64_t id) { voxelise(clouds[id], 0.05); }); }});
  const double made = median(seconds[0]) / points, sorted = median(seconds[1]) / points;
  std::printf("%-34s %5.1f ns a point made, %5.1f ns a point voxelised\n", "rooms, 5 cm", made * 1e9, sorted * 1e9);
  return {{"work", "rooms"}, {"ns_per_point_made", made * 1e9}, {"ns_per_point_voxelised", sorted * 1e9}};
}

nlohmann::json measure_all(const bench::Arguments&) {
  at::set_num_threads(1);
  const std::vector<Work> works{
      {"1 x 28 x 28, normalize", {1, 28, 28}, "normalize:0.5:0.3", 60000},
      {"3 x 32 x 32, normalize", {3, 32, 32}, "normalize:0.5:0.5:0.5:0.3:0.3:0.3", 20000},
      {"3 x 32 x 32, crop, flip, normalize", {3, 32, 32}, "crop:4,flip,normalize:0.5:0.5:0.5:0.3:0.3:0.3", 20000},
      {"3 x 224 x 224, normalize, last",
       {3, 224, 224},
       "normalize:0.5:0.5:0.5:0.3:0.3:0.3",
       768,
       Layout::channels_last},
      {"3 x 224 x 224, crop, flip, last",
       {3, 224, 224},
       "crop:8,flip,normalize:0.5:0.5:0.5:0.3:0.3:0.3",
       768,
       Layout::channels_last}};
  nlohmann::json results = nlohmann::json::array();
  for (const Work& work : works) results.push_back(measure(work, 7));
  results.push_back(measure_clouds(7));
  return results;
}

}  // namespace
}  // namespace lockstep::data

int main(int argc, char** argv) {
  return lockstep::bench::run_program(
      argc, argv,
      {.measures = "Reading, transforming and batching images and rooms.", .measure = lockstep::data::measure_all});
}
