// SPDX-License-Identifier: Apache-2.0
// The whole program on clouds of points: trained, evaluated, verified, and a scene labelled.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/program.h"
#include "lockstep/base/detail/file.h"
#include "lockstep/comm/connect.h"
#include "lockstep/data/cloud_files.h"
#include "lockstep/data/ply.h"
#include "lockstep/pictures/png.h"
#include "support/published_clouds.h"
#include "support/temporary_folder.h"

namespace lockstep::cli {
namespace {

using test::TemporaryFolder;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

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
  EXPECT_EQ(figures["counted"], "voxels");
  const Ended of_points = run_program({"evaluate", folder.file("run"), "--points"});
  EXPECT_THAT(of_points.out, HasSubstr("1 examples of rooms, by points: loss "));

  const auto rooms = data::open_dataset("rooms:2:3", data::Subset::train, {.seed = 9, .voxel = 0.4});
  const data::Cloud scene = dynamic_cast<const data::CloudDataset&>(*rooms).read_cloud(0);
  data::Ply mesh = data::ply_of(scene);
  mesh.comments = {"a mesh"};
  mesh.elements.push_back({.name = "face", .rows = 1, .columns = {{.name = "corner", .values = {7}}}});
  data::write_ply(folder.file("scene.ply"), mesh);
  const Ended labelled = run_program({"predict", folder.file("run"), folder.file("scene.ply"), "--out",
                                      folder.file("labelled.ply"), "--png", folder.file("view.png"), "--json"});
  ASSERT_EQ(labelled.exit_code, 0) << labelled.err;
  const auto answer = nlohmann::json::parse(labelled.out)[0];
  EXPECT_EQ(answer["points"], scene.size());
  const data::Ply written = data::read_ply(folder.file("labelled.ply"));
  EXPECT_EQ(written.comments, mesh.comments);
  ASSERT_EQ(written.elements.size(), 2);
  EXPECT_EQ(written.elements[1], mesh.elements[1]);
  const data::Cloud found = data::cloud_of(written, "labelled.ply");
  EXPECT_EQ(found.points, scene.points);
  int64_t right = 0, floor = 0;
  for (int64_t i = 0; i < found.size(); ++i) {
    right += found.labels[i] == scene.labels[i] ? 1 : 0;
    floor += found.labels[i] == 0 ? 1 : 0;
  }
  EXPECT_NEAR(answer["accuracy"], static_cast<double>(right) / static_cast<double>(found.size()), 1e-12);
  EXPECT_EQ(answer["classes"]["floor"], floor);
  const auto view = pictures::decode_png(read_file(folder.file("view.png")), "view.png");
  EXPECT_EQ(view.width, 960);
  EXPECT_EQ(view.height, 480);
}

/// As on another machine, which has the run and some scans alone.
TEST(Clouds, AreLabelledForABenchmarkWhereTheDataIsNot) {
  const TemporaryFolder folder;
  data::published::kitti(folder.file("data"));
  const Ended trained = run_program({"train", "minkunet14a", "--data", "kitti:" + folder.file("data"), "--voxel", "0.5",
                                     "--batch", "1", "--replicas", "1", "--steps", "1", "--no-curves",
                                     "--evaluate-every", "0", "--out", folder.file("run")});
  ASSERT_EQ(trained.exit_code, 0) << trained.out << trained.err;
  const std::filesystem::path scans = folder.file("scans");
  std::filesystem::rename(folder.file("data/sequences/00/velodyne"), scans);
  std::filesystem::remove_all(folder.file("data"));
  const std::string first = scans / "000000.bin", second = scans / "000001.bin", results = folder.file("results");
  const Ended asked = run_program({"predict", folder.file("run"), first, second, "--labels", results, "--out", results,
                                   "--png", results, "--json"});
  ASSERT_EQ(asked.exit_code, 0) << asked.err;
  const auto answers = nlohmann::json::parse(asked.out);
  ASSERT_EQ(answers.size(), 2);
  for (const size_t number : {0, 1}) {
    const std::string stem = results + (number == 0 ? "/000000" : "/000001"), labels = stem + ".label";
    const data::Cloud cloud = data::cloud_of(data::read_ply(stem + ".ply"), stem);
    EXPECT_EQ(answers[number]["points"], cloud.size());
    const data::DatasetInfo info{.name = "semantic-kitti", .classes = 19};
    EXPECT_EQ(data::published::read(labels), data::label_file(cloud.labels, info));
    EXPECT_EQ(pictures::decode_png(read_file(stem + ".png"), stem).width, 960);
  }

  const Ended one = run_program({"predict", folder.file("run"), first, "--labels", folder.file("one.label")});
  EXPECT_THAT(one.out, HasSubstr("000000.bin: 5 points, "));
  EXPECT_EQ(data::published::read(folder.file("one.label")), data::published::read(results + "/000000.label"));
  const Ended twice = run_program({"predict", folder.file("run"), first, first, "--labels", results});
  EXPECT_EQ(twice.exit_code, 2);
  EXPECT_THAT(twice.err, HasSubstr("000000.label' would be written over a file to read or another one's results"));
  const Ended no_folder =
      run_program({"predict", folder.file("run"), first, second, "--out", folder.file("one.label")});
  EXPECT_EQ(no_folder.exit_code, 2);
  EXPECT_THAT(no_folder.err, HasSubstr("one.label' is a file, and 2 files have results, expected a folder for them"));
  data::published::write(results + "/broken.bin", "123");
  const Ended broken = run_program({"predict", folder.file("run"), first, results + "/broken.bin", second});
  EXPECT_EQ(broken.exit_code, 2);
  EXPECT_THAT(broken.err, HasSubstr("broken.bin, offset 0: the file ends with 3 bytes, expected 16 bytes a point"));
  EXPECT_THAT(broken.out, Not(HasSubstr("000001.bin")));
  const Ended over = run_program({"predict", folder.file("run"), results + "/000000.ply", "--out", results});
  EXPECT_THAT(over.err, HasSubstr("000000.ply' would be written over a file to read"));
}

/// The data set's own clouds, four times as large and in files, are told apart as evaluate tells them apart.
TEST(Clouds, AreClassifiedAsAWhole) {
  const TemporaryFolder folder;
  data::published::modelnet(folder.file("things"));
  const std::string things = "modelnet40:" + folder.file("things") + ":400";
  const Ended trained = run_program({"train", "minkresnet14", "--data", things, "--voxel", "0.2", "--batch", "2",
                                     "--replicas", "1", "--epochs", "2", "--lr", "1e-3", "--no-curves",
                                     "--evaluate-every", "0", "--out", folder.file("run")});
  ASSERT_EQ(trained.exit_code, 0) << trained.out << trained.err;
  const Ended evaluated = run_program({"evaluate", folder.file("run"), "--json", "--metrics", "confusion"});
  ASSERT_EQ(evaluated.exit_code, 0) << evaluated.err;
  const auto figures = nlohmann::json::parse(evaluated.out);
  const Ended of_points = run_program({"evaluate", folder.file("run"), "--points"});
  EXPECT_EQ(of_points.exit_code, 2);
  EXPECT_THAT(of_points.err, HasSubstr("--points is for clouds whose points have a class each, and modelnet40 has"));

  const auto tests = data::open_dataset(things, data::Subset::test, {.voxel = 0.2});
  Words files;
  for (int64_t id = 0; id < tests->size(); ++id) {
    data::Cloud thing = dynamic_cast<const data::CloudDataset&>(*tests).read_cloud(id);
    for (auto& point : thing.points)
      for (float& value : point) value *= 4;
    thing.channels = 3;
    thing.features.assign(3 * thing.points.size(), 0.5F);
    files.push_back(folder.file("thing-" + std::to_string(id) + ".ply"));
    data::write_ply(files.back(), data::ply_of(thing));
  }
  const Ended asked = run_program(Words{"predict", folder.file("run"), "--json"} + files);
  ASSERT_EQ(asked.exit_code, 0) << asked.err;
  const auto answers = nlohmann::json::parse(asked.out);
  ASSERT_EQ(answers.size(), 2);
  double loss = 0, sum = 0;
  for (size_t id = 0; id < 2; ++id) {
    EXPECT_EQ(answers[id]["file"], files[id]);
    EXPECT_EQ(answers[id]["points"], 400);
    const auto& best = answers[id]["predictions"];
    ASSERT_EQ(best.size(), 2);
    EXPECT_GE(best[0]["probability"], best[1]["probability"]);
    const auto& names = figures["classes"];
    const size_t found = std::ranges::find(names, best[0]["class"]) - names.begin();
    EXPECT_EQ(figures["confusion"][id][found], 1) << asked.out << evaluated.out;
    for (const auto& one : best) {
      sum += one["probability"].get<double>();
      if (one["class"] == names[id]) loss -= std::log(one["probability"].get<double>()) / 2;
    }
  }
  EXPECT_NEAR(sum, 2, 1e-5);
  EXPECT_NEAR(loss, figures["loss"], 1e-3);

  const std::string mesh = folder.file("things/pyramid/test/pyramid_0001.off"), picture = folder.file("view.png");
  const Ended words = run_program({"predict", folder.file("run"), mesh, "--top", "1", "--png", picture});
  EXPECT_THAT(words.out, MatchesRegex(".*pyramid_0001.off: 400 points, (plate|pyramid) [01][.][0-9]+\n")) << words.err;
  EXPECT_EQ(pictures::decode_png(read_file(picture), picture).width, 960);
  const Ended labels = run_program({"predict", folder.file("run"), mesh, "--out", folder.file("labelled.ply")});
  EXPECT_EQ(labels.exit_code, 2);
  EXPECT_THAT(labels.err, HasSubstr("this one gives a whole cloud one class, so there are no labels to write"));
  data::write_ply(folder.file("empty.ply"), data::ply_of({}));
  const Ended empty = run_program({"predict", folder.file("run"), folder.file("empty.ply")});
  EXPECT_THAT(empty.err, HasSubstr("empty.ply' has no points, expected some to classify"));
}

TEST(Clouds, NeedACloudWhereOneIsExpected) {
  const TemporaryFolder folder;
  const Ended trained =
      run_program(Words{"train"} + recipe() +
                  Words{"--steps", "1", "--no-curves", "--evaluate-every", "0", "--out", folder.file("run")});
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  write_file(folder.file("broken.ply"), "ply\nformat ascii 1.0\nelement vertex 9\nproperty float x\n");
  const Ended broken = run_program({"predict", folder.file("run"), folder.file("broken.ply")});
  EXPECT_EQ(broken.exit_code, 2);
  EXPECT_THAT(broken.err, HasSubstr("broken.ply, offset 55: the header ends without end_header"));
  write_file(folder.file("mesh.off"), "OFF\n");
  const Ended mesh = run_program({"predict", folder.file("run"), folder.file("mesh.off")});
  EXPECT_THAT(mesh.err, HasSubstr("mesh.off' is no PLY file, expected one for a network of rooms"));
  data::write_ply(folder.file("far.ply"),
                  data::ply_of({.points = {{0, 0, 0}, {3e9, 0, 0}}, .features = {0, 0, 0, 1, 1, 1}}));
  const Ended far = run_program({"predict", folder.file("run"), folder.file("far.ply")});
  EXPECT_EQ(far.exit_code, 2);
  EXPECT_THAT(far.err, HasSubstr("far.ply': voxelise: point 1 has the coordinate 3e+09"));
}

}  // namespace
}  // namespace lockstep::cli
