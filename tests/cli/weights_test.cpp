// SPDX-License-Identifier: Apache-2.0
// Files of weights alone, which say by their shapes what network they are of.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cli/program.h"
#include "support/temporary_folder.h"

namespace lockstep::cli {
namespace {

using ::testing::HasSubstr;

TEST(WeightsAlone, DecideTheStemAndTheNumberOfClasses) {
  const test::TemporaryFolder folder;
  const Ended trained =
      run_program({"train", "resnet18", "--set", "width=0.125,stem=imagenet", "--data", "synthetic:3x32x32:7:16",
                   "--batch", "8", "--replicas", "2", "--steps", "1", "--no-curves", "--out", folder.file("run")});
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const auto evaluate = [&](const std::string& data) {
    return run_program(
        {"evaluate", folder.file("run/weights.pt"), "--model", "resnet18", "--set", "width=0.125", "--data", data});
  };
  // A small image would have the other stem, and the data has fewer classes than the network.
  for (const char* data : {"synthetic:3x32x32:7:16", "synthetic:3x32x32:5:16"}) {
    const Ended fits = evaluate(data);
    EXPECT_EQ(fits.exit_code, 0) << data << ": " << fits.err;
    EXPECT_THAT(fits.out, HasSubstr("accuracy")) << data;
  }
  const Ended more = evaluate("synthetic:3x32x32:9:16");
  EXPECT_EQ(more.exit_code, 2);
  EXPECT_THAT(more.err, HasSubstr("gives 7 classes, and synthetic has 9"));
}

}  // namespace
}  // namespace lockstep::cli
