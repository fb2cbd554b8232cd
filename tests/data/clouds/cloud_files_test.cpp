// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/cloud_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>

#include "lockstep/data/ply.h"
#include "support/files.h"
#include "support/published_clouds.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::shared_ptr<const CloudDataset> scenes_in(const std::string& spec, Subset subset = Subset::train) {
  return std::dynamic_pointer_cast<const CloudDataset>(open_dataset(spec, subset));
}

TEST(CloudFiles, HaveTheFeaturesOfTheDataSet) {
  const TemporaryFolder folder;
  write_ply(folder / "scan.ply", ply_of({.points = {{1, 2, 3}}, .features = {0, 0, 0}}));
  EXPECT_THAT(
      [&] { read_cloud_file(folder / "scan.ply", {.name = "pairs", .input_shape = {2}}); },
      ThrowsMessage<Error>(HasSubstr("scan.ply' has points with 3 features, expected 2, as the clouds of pairs")));
}

TEST(CloudFiles, AreScansThatNobodyHasLabelledAfterSemanticKitti) {
  const TemporaryFolder folder;
  published::kitti(folder / "");
  const auto train = scenes_in("kitti:" + folder.path().string());
  const std::string scan = (folder / "sequences/08/velodyne/000000.bin").string();
  const Cloud cloud = read_cloud_file(scan, train->info());
  EXPECT_EQ(cloud.points, scenes_in("kitti:" + folder.path().string(), Subset::test)->read_cloud(0).points);
  EXPECT_TRUE(cloud.labels.empty());
  EXPECT_THAT(
      [&] { read_cloud_file("scene.ply", train->info()); },
      ThrowsMessage<Error>(HasSubstr("scene.ply is no scan of this data set, expected a file *.bin of 4 floats")));
}

/// A mesh and a scan of elsewhere become what the data set's own are: at the origin, in the unit ball, of the
/// feature 1.
TEST(CloudFiles, BecomeThingsAsModelNetHasThem) {
  const TemporaryFolder folder;
  published::modelnet(folder / "");
  const auto train = scenes_in("modelnet40:" + folder.path().string() + ":300");
  const Cloud own = train->read_cloud(1),
              mesh = read_cloud_file(folder / "pyramid/test/pyramid_0001.off", train->info());
  EXPECT_EQ(mesh.size(), 300);
  EXPECT_EQ(mesh.channels, 1);
  EXPECT_EQ(mesh.features, own.features);
  Cloud scan;
  for (const Point& point : own.points) scan.points.push_back({4 * point[0] + 100, 4 * point[1], 4 * point[2] - 7});
  scan.features.assign(3 * scan.points.size(), 0.25F);
  write_ply(folder / "scan.ply", ply_of(scan));
  const Cloud read = read_cloud_file(folder / "scan.ply", train->info());
  EXPECT_EQ(read.features, own.features);
  ASSERT_EQ(read.size(), own.size());
  for (int64_t i = 0; i < read.size(); ++i)
    for (size_t axis = 0; axis < 3; ++axis) EXPECT_NEAR(read.points[i][axis], own.points[i][axis], 1e-5);
}

/// The files that a benchmark takes are those of the data set's own labels: read back they are the same classes.
TEST(CloudFiles, OfLabelsAreReadBackAsTheClassesTheyWereMadeOf) {
  const TemporaryFolder folder;
  published::kitti(folder / "kitti");
  const auto scans = scenes_in("kitti:" + (folder / "kitti").string(), Subset::test);
  std::vector<int64_t> classes(scans->info().classes);
  std::iota(classes.begin(), classes.end(), 0);
  const fs::path sequence = folder / "kitti/sequences/08";
  published::write(sequence / "velodyne/000000.bin", published::bytes_of(std::vector<float>(4 * classes.size(), 0.5F)));
  published::write(sequence / "labels" / label_file_name(sequence / "velodyne/000000.bin", scans->info()),
                   label_file(classes, scans->info()));
  EXPECT_EQ(scans->read_cloud(0).labels, classes);

  published::scannet(folder / "scannet");
  const auto rooms = scenes_in("scannet:" + (folder / "scannet").string());
  const std::string name = label_file_name("scans/scene0707_00/scene0707_00_vh_clean_2.ply", rooms->info());
  EXPECT_EQ(name, "scene0707_00.txt");
  classes.push_back(19);
  published::write(folder / name, label_file(classes, rooms->info()));
  std::ifstream ids(folder / name);
  const std::vector<int64_t> lines{std::istream_iterator<int64_t>(ids), {}};
  published::scannet_scene(folder / "scannet/scans", "scene0001_00", lines);
  EXPECT_EQ(rooms->read_cloud(0).labels, classes);
}

TEST(CloudFiles, OfLabelsAreClassesFromOneOnAfterNuScenes) {
  const DatasetInfo info{.name = "nuscenes", .classes = 16};
  EXPECT_EQ(label_file_name("samples/LIDAR_TOP/1.pcd.bin", info), "1_lidarseg.bin");
  EXPECT_EQ(label_file(std::vector<int64_t>{0, 15, 3}, info), "\x01\x10\x04");
}

TEST(CloudFiles, OfLabelsAreNumbersOfClassesOtherwise) {
  const DatasetInfo info{.name = "rooms", .classes = 8};
  EXPECT_EQ(label_file_name("a/b.scene.ply", info), "b.scene.txt");
  EXPECT_EQ(label_file_name("a/scene.bin", info), "scene.txt");
  EXPECT_EQ(label_file(std::vector<int64_t>{7, 0}, info), "7\n0\n");
  EXPECT_THAT([&] { label_file(std::vector<int64_t>{8}, info); },
              ThrowsMessage<Error>(HasSubstr("a point has the class 8, expected 0 to 7, one of rooms")));
}

}  // namespace
}  // namespace lockstep::data
