// SPDX-License-Identifier: Apache-2.0
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cstdio>
#include <iomanip>
#include <memory>
#include <sstream>

#include "cli/commands/commands.h"
#include "lockstep/base/allocator.h"
#include "lockstep/comm/connect.h"
#include "lockstep/numerics/device.h"
#include "lockstep/numerics/fingerprint.h"
#include "lockstep/run/detail/json.h"

namespace lockstep::cli {
namespace {

using run::Json;

Json describe_devices() {
  Json devices = Json::array();
  for (const Device& device : all_devices())
    devices.push_back({{"name", device.to_string()}, {"description", describe(device)}});
  return devices;
}

Json describe_backends() {
  const auto built = comm::backends();
  Json backends{{"local", true}};
  for (const char* name : {"gloo", "mpi", "nccl"})
    backends[name] = std::find(built.begin(), built.end(), name) != built.end();
  backends["hierarchical"] = true;
  return backends;
}

// One for each kind of device: slots of a CPU and equal GPUs have the same.
Json describe_fingerprints() {
  Json fingerprints = Json::array();
  for (const Device& device : all_devices()) {
    Json items = Json::object();
    const auto fingerprint = Fingerprint::of(device);
    for (const auto& [name, value] : fingerprint.items()) items[name] = value;
    if (std::find(fingerprints.begin(), fingerprints.end(), items) == fingerprints.end()) fingerprints.push_back(items);
  }
  return fingerprints;
}

Json describe_place() {
  const auto place = comm::read_environment();
  Json json{{"launcher", place.launcher},
            {"rank", place.rank},
            {"size", place.size},
            {"local_rank", place.local_rank},
            {"local_size", place.local_size},
            {"store_host", place.store_host},
            {"store_port", place.store_port},
            {"store_is_served", place.store_is_served},
            {"job", place.job},
            {"allocator", describe(tune_allocator())}};
  return json;
}

// The same facts in lines. Devices that are described alike share a line.
std::string described(const Json& facts) {
  std::ostringstream out;
  out << "lockstep " << facts["version"].get<std::string>() << "\n\ndevices\n";
  const Json& devices = facts["devices"];
  for (size_t first = 0, next = 0; first < devices.size(); first = next) {
    while (next < devices.size() && devices[next]["description"] == devices[first]["description"]) ++next;
    std::string name = devices[first]["name"];
    if (next - first > 1) name += " to " + devices[next - 1]["name"].get<std::string>();
    out << "  " << std::left << std::setw(16) << name << devices[first]["description"].get<std::string>() << "\n";
  }
  out << "\nbackends\n";
  for (const auto& [name, built] : facts["backends"].items())
    out << "  " << std::left << std::setw(16) << name << (built ? "built in" : "not in this build") << "\n";
  for (const Json& fingerprint : facts["fingerprints"]) {
    out << "\nfingerprint (" << fingerprint.value("device", "cpu") << ")\n";
    for (const auto& [name, value] : fingerprint.items())
      out << "  " << std::left << std::setw(16) << name << value.get<std::string>() << "\n";
  }
  const Json& place = facts["process"];
  out << "\nthis process: rank " << place["rank"] << " of " << place["size"] << ", " << place["local_rank"] << " of "
      << place["local_size"] << " on this host; launcher: " << place["launcher"].get<std::string>()
      << "; allocator: " << place["allocator"].get<std::string>() << "\n";
  return std::move(out).str();
}

int info(bool json) {
  const Json facts{{"version", version()},
                   {"devices", describe_devices()},
                   {"backends", describe_backends()},
                   {"fingerprints", describe_fingerprints()},
                   {"process", describe_place()}};
  std::printf("%s\n", json ? run::dump_json(facts).c_str() : described(facts).c_str());
  return 0;
}

}  // namespace

void setup_info(CLI::App& app, Command& chosen) {
  const auto json = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand("info", "Show devices, backends, versions and the fingerprint");
  command->add_flag("--json", *json, "The same as JSON");
  command->callback([json, &chosen] { chosen = [json] { return info(*json); }; });
}

}  // namespace lockstep::cli
