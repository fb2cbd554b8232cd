// SPDX-License-Identifier: Apache-2.0
#include "cli/relaunch.h"

#include <fstream>
#include <iterator>

#include "lockstep/comm/connect.h"
#include "lockstep/launch/launcher.h"
#include "lockstep/numerics/device.h"

namespace lockstep::cli {

int gpus_of_one_process(const std::string& devices) {
  if (comm::read_environment().size > 1 || cuda_devices().empty()) return 0;
  const auto all = parse_devices(devices.empty() ? "cuda" : devices);
  return all[0].kind == Device::Kind::cuda ? static_cast<int>(all.size()) : 0;
}

int relaunch(int processes) {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  const std::string all{std::istreambuf_iterator<char>(file), {}};
  launch::Options options;
  options.processes = processes;
  options.no_prefix = true;
  for (size_t begin = 0; begin < all.size();) {
    const size_t end = all.find('\0', begin);
    options.program.push_back(all.substr(begin, end - begin));
    begin = end + 1;
  }
  options.program[0] = "/proc/self/exe";
  return launch::run(options);
}

}  // namespace lockstep::cli
