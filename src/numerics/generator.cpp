// SPDX-License-Identifier: Apache-2.0
#include "lockstep/numerics/detail/generator.h"

#include <ATen/CPUGeneratorImpl.h>

#include <mutex>

#include "lockstep/base/error.h"
#include "numerics/cuda/generator.h"

namespace lockstep {
namespace {

// Operations on the CPU ask for a CPUGeneratorImpl and call its methods, which are not virtual: a generator class of
// our own would be refused. So it is theirs, with the state of its Mersenne Twister written by Philox. (Seeding it
// the usual way keeps only 32 bits of a seed, so that two keys in 65,000 would be likely to share their numbers.)
void rekey_cpu(at::CPUGeneratorImpl& generator, RandomKey key) {
  at::mt19937_data_pod state{};
  state.seed_ = key.fold(0).seed;
  state.seeded_ = true;
  state.left_ = 1;  // all words are used up: the first draw turns the state over
  for (size_t i = 0; i < state.state_.size(); i += 4) {
    const PhiloxBlock block = key.block(i / 4);
    for (size_t k = 0; k < 4; ++k) state.state_[i + k] = block.word[k];
  }
  at::mt19937 engine;
  engine.set_data(state);
  const std::lock_guard lock(generator.mutex_);
  generator.set_engine(engine);
  // The second half of a pair of normal numbers is kept for the next call: forget it.
  generator.set_next_float_normal_sample(std::nullopt);
  generator.set_next_double_normal_sample(std::nullopt);
}

}  // namespace

at::Generator keyed_generator(RandomKey key, at::Device device) {
  require(device.is_cpu() || device.is_cuda(), "keyed_generator", "device is ", device.str(), ", expected cpu or cuda");
  at::Generator generator =
      device.is_cpu() ? at::make_generator<at::CPUGeneratorImpl>() : detail::make_cuda_generator(device);
  rekey(generator, key);
  return generator;
}

void rekey(const at::Generator& generator, RandomKey key) {
  require(generator.defined(), "rekey", "generator is undefined");
  if (generator.device().is_cuda())
    detail::rekey_cuda(generator, key);
  else
    rekey_cpu(*generator.get<at::CPUGeneratorImpl>(), key);
}

}  // namespace lockstep
