// SPDX-License-Identifier: Apache-2.0
#include "trials/network.h"

#include <string_view>

#include "lockstep/base/detail/file.h"
#include "lockstep/base/error.h"

namespace lockstep::trials {

extern const std::string_view hosts_sh;  // tools/hosts.sh

std::vector<std::string> Network::launcher() const {
  const auto script = folder_.path() / "hosts.sh";
  write_file(script, hosts_sh);
  // A process takes its place from its host, as there is one launcher for all of them.
  const std::string place =
      "unset TORCHELASTIC_USE_AGENT_STORE GLOO_SOCKET_IFNAME; "
      "export RANK=$HOST WORLD_SIZE=$N_HOSTS LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=host0 MASTER_PORT=29511; ";
  return {"bash", script.string(),       "--rate",
          rate_,  text(hosts_),          "sh",
          "-c",   place + "exec \"$0\"", std::filesystem::read_symlink("/proc/self/exe").string()};
}

}  // namespace lockstep::trials
