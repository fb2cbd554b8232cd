// SPDX-License-Identifier: Apache-2.0
// The trainings of these tests run in processes of this program, which knows a network of its own.
#include <gtest/gtest.h>
#include <torch/nn/functional/activation.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <cstdio>
#include <memory>

#include "lockstep/base/error.h"
#include "lockstep/data/dataset.h"
#include "lockstep/numerics/pinned.h"
#include "lockstep/trials/trial.h"

namespace lockstep::trials {
namespace {

struct NetImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return second(torch::relu(first(x.flatten(1)))); }
  torch::nn::Linear first = register_module("first", torch::nn::Linear(64, 32));
  torch::nn::Linear second = register_module("second", torch::nn::Linear(32, 4));
};

train::Task make_task(const run::Config& config) {
  if (config.model != "mine") return train::make_task(config);
  return {.model = "mine",
          .network = [] { return models::Classifier::of(std::make_shared<NetImpl>()); },
          .train = data::open_dataset(config.data, data::Subset::train),
          .test = data::open_dataset(config.data, data::Subset::test)};
}

}  // namespace
}  // namespace lockstep::trials

int main(int argc, char** argv) {
  lockstep::pin_numerics();
  try {
    if (lockstep::trials::serve(lockstep::trials::make_task)) return 0;
  } catch (const lockstep::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
