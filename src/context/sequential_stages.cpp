// SPDX-License-Identifier: Apache-2.0
#include "lockstep/context/sequential_stages.h"

namespace lockstep {

std::vector<Stage> stages_of(torch::nn::SequentialImpl& modules, const std::string& prefix) {
  std::vector<Stage> stages;
  stages.reserve(modules.size());
  for (auto module = modules.begin(); module != modules.end(); ++module)
    stages.emplace_back(prefix + std::to_string(stages.size()),
                        [module](const at::Tensor& x) { return module->forward(x); });
  return stages;
}

}  // namespace lockstep
