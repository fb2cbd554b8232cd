// SPDX-License-Identifier: Apache-2.0
// Runs over several hosts: network namespaces of this machine, joined by a cable or a switch (tools/hosts.sh).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/run/hosts.h"

namespace lockstep::cli {
namespace {

using testing::HasSubstr;

class Hosts : public testing::TestWithParam<Network> {};
INSTANTIATE_TEST_SUITE_P(, Hosts,
                         testing::Values(Network{"TwoOverIPv4", 2, {}}, Network{"TwoOverIPv6", 2, {"--ipv6"}},
                                         Network{"TwoOverAGigabit", 2, {"--rate", "1gbit"}},
                                         Network{"ThreeBehindASwitch", 3, {}},
                                         Network{"ThreeOverIPv6AndAGigabit", 3, {"--ipv6", "--rate", "1gbit"}}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(Hosts, AgreeOnEveryCollective) {
  SKIP_WITHOUT_GLOO();
  // One process on the first host, two on the second, one on a third.
  const auto ended =
      run_on_hosts(GetParam(),
                   "n=$((1 + HOST % 2)); offset=$((HOST + HOST / 2)); world=$((N_HOSTS + 1)); "
                   "exec \"$LOCKSTEP\" run -n $n --hosts $HOSTS --rank-offset $offset --world-size $world "
                   "-- \"$LOCKSTEP\" selftest --backend gloo");
  SKIP_WHERE_FORBIDDEN(ended);
  EXPECT_EQ(ended.exit_code, 0) << ended.out << ended.err;
  EXPECT_EQ(ended.err, "");
  EXPECT_THAT(ended.out,
              testing::ContainsRegex("\\[0\\] gloo +" + std::to_string(GetParam().hosts + 1) + " +[0-9]+  ok"));
}

TEST(SeveralHosts, JoinTheirThreadsIntoOneGroup) {
  SKIP_WITHOUT_GLOO();
  const auto ended = run_on_hosts({"Two", 2, {}},
                                  "exec \"$LOCKSTEP\" run -n 1 --hosts $HOSTS --rank-offset $HOST "
                                  "-- \"$LOCKSTEP\" selftest --backend hierarchical --threads 3");
  SKIP_WHERE_FORBIDDEN(ended);
  EXPECT_EQ(ended.exit_code, 0) << ended.out << ended.err;
  EXPECT_THAT(ended.out, testing::ContainsRegex("\\[0\\] hierarchical +2 x 3 +[0-9]+  ok"));
}

// No packet comes and no connection closes: only the timeout tells.
TEST(SeveralHosts, SeeACutCableAsAnErrorOnBothSides) {
  SKIP_WITHOUT_GLOO();
  const auto ended =
      run_on_hosts({"Two", 2, {}},
                   "\"$LOCKSTEP\" run -n 1 --timeout 3 --hosts $HOSTS --rank-offset $HOST -- \"$RANKS\" 2>&1 | while "
                   "read -r line; do "
                   "echo \"$line\"; case $HOST$line in *1*'10 rounds'*) ip link set eth0 down;; esac; done");
  SKIP_WHERE_FORBIDDEN(ended);
  for (const char* line : {"[0] CommError: rank 1", "[1] CommError: rank 0", "rank 0 (process", "rank 1 (process"})
    EXPECT_THAT(ended.out, HasSubstr(line));
  for (const auto& line : lines_of(ended.out)) {
    const size_t after = line.find("after ");
    if (after != std::string::npos) {
      EXPECT_LT(std::stod(line.substr(after + 6)), 10) << line;
    }
  }
}

}  // namespace
}  // namespace lockstep::cli
