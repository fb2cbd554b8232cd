// SPDX-License-Identifier: Apache-2.0
// The whole program on clouds of points: trained, evaluated, verified, and a scene labelled.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/program.h"
#include "lockstep/comm/connect.h"
#include "lockstep/data/ply.h"
#include "lockstep/report/files.h"
#include "lockstep/report/image.h"
#include "support/temporary_folder.h"

namespace lockstep::cli {
namespace {

using ::testing::HasSubstr;
using testing::TemporaryFolder;
using Words = std::vector<std::string>;

Words operator+(Words a, const Words& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Words recipe() {
  return {"minkunet14a", "--data", "rooms:6:3", "--voxel", "0.4",  "--replicas", "4",
          "--batch",     "4",      "--sync-bn", "--lr",    "0.02", "--augment",  "turn,flip,jitter:0.01,mix"};
}

TEST(Clouds, EndInTheSameBitsInThreadsAndProcesses) {
  const std::string placements = comm::backends().empty() ? "1;2" : "1;3+1";
  const Ended ended = run_program(Words{"verify"} + recipe() + Words{"--steps", "2", "--placements", placements});
  EXPECT_EQ(ended.exit_code, 0) << ended.out << ended.err;
  EXPECT_TRUE(ended.out.ends_with("\nidentical\n")) << ended.out;
}

TEST(Clouds, AreTrainedOnEvaluatedAndLabelled) {
  const TemporaryFolder folder;
  const Ended trained =
      run_program(Words{"train"} + recipe() +
                  Words{"--epochs", "1", "--no-curves", "--out", folder.file("run"), "--cache", folder.file("cache")});
  ASSERT_EQ(trained.exit_code, 0) << trained.out << trained.err;
  EXPECT_THAT(trained.out, HasSubstr("test mIoU 0."));

  const Ended evaluated = run_program({"evaluate", folder.file("run"), "--json"});
  ASSERT_EQ(evaluated.exit_code, 0) << evaluated.err;
  const auto figures = nlohmann::json::parse(evaluated.out);
  EXPECT_EQ(figures["examples"], 1);
  EXPECT_EQ(figures["iou"].size(), 8);
  EXPECT_GE(figures["mean_iou"], 0);
  EXPECT_FALSE(figures.contains("confusion"));

  const auto rooms = data::open_dataset("rooms:2:3", data::Split::train, {.seed = 9, .voxel = 0.4});
  const data::Cloud scene = dynamic_cast<const data::CloudDataset&>(*rooms).read_cloud(0);
  data::write_ply(folder.file("scene.ply"), data::ply_of(scene));
  const Ended labelled = run_program({"predict", folder.file("run"), folder.file("scene.ply"), "--out",
                                      folder.file("labelled.ply"), "--png", folder.file("view.png"), "--json"});
  ASSERT_EQ(labelled.exit_code, 0) << labelled.err;
  const auto answer = nlohmann::json::parse(labelled.out)[0];
  EXPECT_EQ(answer["points"], scene.size());
  const data::Cloud found = data::cloud_of(data::read_ply(folder.file("labelled.ply")), "labelled.ply");
  EXPECT_EQ(found.points, scene.points);
  int64_t right = 0, floor = 0;
  for (int64_t i = 0; i < found.size(); ++i) {
    right += found.labels[i] == scene.labels[i] ? 1 : 0;
    floor += found.labels[i] == 0 ? 1 : 0;
  }
  EXPECT_NEAR(answer["accuracy"], static_cast<double>(right) / static_cast<double>(found.size()), 1e-12);
  EXPECT_EQ(answer["classes"]["floor"], floor);
  const auto view = report::decode_png(report::read_file(folder.file("view.png")), "view.png");
  EXPECT_EQ(view.width, 960);
  EXPECT_EQ(view.height, 480);
}

TEST(Clouds, NeedACloudWhereOneIsExpected) {
  const TemporaryFolder folder;
  const Ended trained =
      run_program(Words{"train"} + recipe() +
                  Words{"--steps", "1", "--no-curves", "--evaluate-every", "0", "--out", folder.file("run")});
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  report::write_file_atomically(folder.file("broken.ply"),
                                "ply\nformat ascii 1.0\nelement vertex 9\nproperty float x\n");
  const Ended broken = run_program({"predict", folder.file("run"), folder.file("broken.ply")});
  EXPECT_EQ(broken.exit_code, 2);
  EXPECT_THAT(broken.err, HasSubstr("broken.ply, offset 55: the header ends without end_header"));
}

}  // namespace
}  // namespace lockstep::cli
