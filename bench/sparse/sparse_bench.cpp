// SPDX-License-Identifier: Apache-2.0
// Maps and convolutions on rooms, as times and as shares of this machine's matrix product, against gather, matrix
// product and scatter-add with libtorch. Everything that is compared is run in turns.
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <cstdio>
#include <functional>
#include <nlohmann/json.hpp>

#include "lockstep/base/allocator.h"
#include "lockstep/base/detail/instruction_set.h"
#include "lockstep/base/detail/parallel_for.h"
#include "lockstep/sparse/kernel_map.h"
#include "lockstep/sparse/kernel_region.h"
#include "sparse/ops/kernels.h"
#include "support/program.h"
#include "support/rooms.h"
#include "support/sgemm.h"

namespace {

using namespace lockstep;
using namespace lockstep::sparse;
using Json = nlohmann::json;

double seconds(const std::function<void()>& run) {
  const double start = bench::work_seconds();
  run();
  return bench::work_seconds() - start;
}

/// The best time of each of `runs`, which take turns.
std::vector<double> interleaved(const std::vector<std::function<void()>>& runs, int rounds) {
  std::vector<double> best(runs.size(), 1e9);
  for (int round = 0; round < rounds; ++round)
    for (size_t i = 0; i < runs.size(); ++i) best[i] = std::min(best[i], seconds(runs[i]));
  return best;
}

struct Maps {
  CoordinateMapPtr room, coarse;
  KernelMapPtr kernel;
};

Maps time_maps(const at::Tensor& coordinates, const at::Tensor& shuffled, Json& out) {
  Maps maps;
  const std::vector<int64_t> ones = {1, 1, 1}, twos = {2, 2, 2};
  const auto offsets = KernelRegion::hypercube({3, 3, 3}, ones).offsets(ones);
  const auto offsets2 = KernelRegion::hypercube({2, 2, 2}, ones).offsets(ones);
  CoordinateMapPtr mixed;
  KernelMapPtr down;
  const auto times = interleaved(
      {[&] { mixed = CoordinateMap::insert(shuffled).map; },
       [&] { maps.room = CoordinateMap::insert(coordinates).map; }, [&] { maps.coarse = mixed->strided(twos); },
       [&] {
         maps.kernel = KernelMap::build(maps.room, maps.room, offsets);
         maps.kernel->tile_bounds(0);
       },
       [&] { KernelMap::build(mixed, mixed, offsets)->tile_bounds(0); },
       [&] { KernelMap::build(mixed, maps.coarse, offsets2)->tile_bounds(0); }},
      15);
  const char* names[] = {"insert, shuffled", "insert, sorted",       "stride 2",
                         "kernel map 3x3x3", "kernel map, shuffled", "kernel map 2x2x2 stride 2"};
  for (size_t i = 0; i < times.size(); ++i) {
    std::printf("    %-28s %7.2f ms\n", names[i], times[i] * 1e3);
    out[names[i]] = times[i] * 1e3;
  }
  std::printf("    %ld voxels, %ld coarse, %.2f million pairs\n", maps.room->size(), maps.coarse->size(),
              maps.kernel->pair_count() * 1e-6);
  out["voxels"] = maps.room->size();
  out["pairs"] = maps.kernel->pair_count();
  return maps;
}

/// MinkowskiEngine's method: gather, matrix product and scatter-add for each offset.
class GatherScatter {
 public:
  explicit GatherScatter(const KernelMap& map) : map_(map) {
    for (int64_t k = 0; k < map.volume(); ++k) rows_.push_back(map.rows(k));
  }
  at::Tensor forward(const at::Tensor& x, const at::Tensor& w) const {
    at::Tensor y = at::zeros({map_.out_size(), w.size(2)});
    for (int64_t k = 0; k < map_.volume(); ++k) scatter(at::mm(x.index_select(0, rows_[k][0]), w[k]), rows_[k][1], y);
    return y;
  }
  at::Tensor input_gradient(const at::Tensor& g, const at::Tensor& w) const {
    at::Tensor dx = at::zeros({map_.in_size(), w.size(1)});
    for (int64_t k = 0; k < map_.volume(); ++k)
      scatter(at::mm(g.index_select(0, rows_[k][1]), w[k].t()), rows_[k][0], dx);
    return dx;
  }
  at::Tensor weight_gradient(const at::Tensor& x, const at::Tensor& g, const at::Tensor& w) const {
    at::Tensor dw = at::empty_like(w);
    for (int64_t k = 0; k < map_.volume(); ++k) {
      at::Tensor target = dw[k];
      at::mm_out(target, x.index_select(0, rows_[k][0]).t(), g.index_select(0, rows_[k][1]));
    }
    return dw;
  }

 private:
  // Each output row occurs once at one offset, so rows can be added in parallel.
  static void scatter(const at::Tensor& from, const at::Tensor& rows, at::Tensor& to) {
    const float* source = from.const_data_ptr<float>();
    const int64_t* row = rows.const_data_ptr<int64_t>();
    float* target = to.mutable_data_ptr<float>();
    const int64_t channels = to.size(1);
    parallel_for(0, from.size(0), 2048, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        for (int64_t c = 0; c < channels; ++c) target[row[i] * channels + c] += source[i * channels + c];
    });
  }
  const KernelMap& map_;
  std::vector<at::Tensor> rows_;
};

void time_convolutions(const KernelMapPtr& map, double peak, Json& out) {
  const GatherScatter other(*map);
  const KernelMapPtr back = map->transposed();
  for (const int64_t channels : {32, 64, 128}) {
    const at::Tensor x = at::randn({map->in_size(), channels}), w = at::randn({map->volume(), channels, channels});
    const at::Tensor g = at::randn({map->out_size(), channels});
    at::Tensor keep;
    const auto times =
        interleaved({[&] { keep = convolution(x, w, map, false, 1); }, [&] { keep = other.forward(x, w); },
                     [&] { keep = convolution(g, w, back, true, 1); }, [&] { keep = other.input_gradient(g, w); },
                     [&] { keep = convolution_weight(x, g, map, 1); }, [&] { keep = other.weight_gradient(x, g, w); }},
                    channels == 128 ? 4 : 8);
    const double work = 2e-9 * static_cast<double>(map->pair_count() * channels * channels);
    const char* names[] = {"forward", "input gradient", "weight gradient"};
    for (int i = 0; i < 3; ++i) {
      const double ours = work / times[2 * i], theirs = work / times[2 * i + 1];
      std::printf(
          "    %3ld channels %-16s %8.1f ms %7.1f GFLOP/s %5.1f %% of sgemm; gather-GEMM-scatter %6.1f, ratio %.2f\n",
          channels, names[i], times[2 * i] * 1e3, ours, 100 * ours / peak, theirs, ours / theirs);
      out[std::to_string(channels)][names[i]] = {{"ms", times[2 * i] * 1e3},
                                                 {"gflops", ours},
                                                 {"share_of_sgemm", ours / peak},
                                                 {"gather_scatter_gflops", theirs}};
    }
  }
}

Json measure(const bench::Arguments& arguments) {
  const std::vector<int64_t> sizes = bench::room_sizes(arguments);
  const bool maps_only = arguments.has("--maps");
  tune_allocator();  // as training programs do: freed memory is used again
  Json all;
  all["cpu_level"] = to_string(cpu_level());
  for (const int64_t threads : arguments.numbers("--threads", {1, 2})) {
    at::set_num_threads(static_cast<int>(threads));
    const double peak = bench::sgemm_peak();
    std::printf("%ld thread%s, sgemm peak %.1f GFLOP/s, %s\n", static_cast<long>(threads), threads > 1 ? "s" : "", peak,
                to_string(cpu_level()));
    Json& out = all["threads"][std::to_string(threads)];
    out["sgemm_gflops"] = peak;
    for (const int64_t size : sizes) {
      std::printf("  room of about %ld voxels\n", size);
      Json& room = out["rooms"][std::to_string(size)];
      const Maps maps = time_maps(bench::make_room(size, 1, false), bench::make_room(size, 1, true), room["maps"]);
      if (size == sizes.back() && !maps_only) time_convolutions(maps.kernel, peak, room["convolution"]);
    }
  }
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  return bench::run_program(
      argc, argv,
      {.measures = "Kernel maps and sparse convolutions of rooms, against gather, GEMM, scatter.",
       .measure = measure,
       .options = {bench::voxels_option, {"--threads", "N", "default 1, then 2"}, {"--maps", "", "no convolutions"}}});
}
