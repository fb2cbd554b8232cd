// SPDX-License-Identifier: Apache-2.0
#include "lockstep/context/draws.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Generator.h>

#include <mutex>

#include "lockstep/context/detail/context.h"
#include "lockstep/numerics/detail/generator.h"

namespace lockstep {

void Draws::begin(RandomKey key) noexcept {
  key_ = key;
  draws_ = 0;
}

const at::Generator& Draws::next_generator(at::Device device) {
  const RandomKey key = next_key();
  for (const at::Generator& generator : generators_)
    if (generator.device().type() == device.type() && (device.is_cpu() || generator.device() == device)) {
      rekey(generator, key);
      return generator;
    }
  return generators_.emplace_back(keyed_generator(key, device));
}

Draws* Draws::current() noexcept {
  return Context::current().draws;
}

RandomKey draw_key() {
  if (Draws* draws = Draws::current()) return draws->next_key();
  auto& generator = *at::detail::getDefaultCPUGenerator().get<at::CPUGeneratorImpl>();
  const std::lock_guard lock(generator.mutex_);
  const uint64_t seed = generator.random64();
  return {seed, generator.random64()};
}

}  // namespace lockstep
