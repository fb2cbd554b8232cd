// SPDX-License-Identifier: Apache-2.0
// The GPU's kernels against what libtorch has for the same work.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cuda/areas.h"
#include "lockstep/numerics/device.h"
#include "lockstep/numerics/pinned.h"
#include "support/program.h"
#include "support/rooms.h"

namespace {

using namespace lockstep;
using Json = nlohmann::json;

Json measure(const bench::Arguments& arguments) {
  if (cuda_devices().empty()) {
    std::printf("no CUDA device that this build has code for: nothing was measured\n");
    return nullptr;
  }
  pin_numerics();
  const auto rounds = static_cast<int>(arguments.number("--rounds", 15));
  const std::string device = describe({Device::Kind::cuda, 0});
  std::printf("%s\n", device.c_str());
  Json all{{"device", device}};
  all["reductions"] = bench::measure_reductions(rounds);
  all["random numbers"] = bench::measure_random_numbers(rounds);
  all["batch norms"] = bench::measure_batch_norms(rounds);
  all["convolutions"] = bench::measure_convolutions(bench::room_sizes(arguments), rounds);
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  return bench::run_program(argc, argv,
                            {.measures = "Kernels on the first GPU, against libtorch's for the same work.",
                             .measure = measure,
                             .options = {bench::voxels_option, {"--rounds", "N", "turns of each; default 15"}}});
}
