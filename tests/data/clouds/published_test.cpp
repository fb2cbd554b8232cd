// SPDX-License-Identifier: Apache-2.0
// Readers of published data sets of clouds, on small ones in their formats.
#include "support/published_clouds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "lockstep/data/cloud.h"
#include "lockstep/data/cloud_files.h"
#include "lockstep/data/loader.h"
#include "support/files.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;

using testing::ElementsAre;
using testing::HasSubstr;

std::shared_ptr<const CloudDataset> open(const std::string& spec, Subset subset = Subset::train) {
  return std::dynamic_pointer_cast<const CloudDataset>(open_dataset(spec, subset, {.seed = 3, .voxel = 0.1}));
}

/// That opening and reading all of it gives this message.
void expect_error(const std::string& spec, const std::string& message, Subset subset = Subset::train) {
  EXPECT_THAT(error_of([&] {
                const auto scenes = open(spec, subset);
                for (int64_t id = 0; id < scenes->size(); ++id) scenes->read_cloud(id);
              }),
              HasSubstr(message));
}

TEST(ScanNet, HasTheTwentyClassesOfTheBenchmark) {
  const TemporaryFolder folder;
  published::scannet(folder / "");
  const auto train = open("scannet:" + folder.path().string()),
             test = open("scannet:" + folder.path().string(), Subset::test);
  EXPECT_EQ(train->info().classes, 20);
  EXPECT_EQ(train->info().class_names[19], "other furniture");
  ASSERT_EQ(train->size(), 3);
  ASSERT_EQ(test->size(), 1);  // of the room 10, as no list says otherwise
  const Cloud cloud = train->read_cloud(0);
  EXPECT_THAT(cloud.labels, ElementsAre(0, 1, -100, -100, 19));
  EXPECT_EQ(cloud.points[3], (Point{3, 0.5F, 0}));
  EXPECT_EQ(cloud.features[5], 0.2F);
  EXPECT_THAT(train->read_cloud(1).labels, ElementsAre(18, 4, -100));
}

TEST(ScanNet, FollowsItsLists) {
  const TemporaryFolder folder;
  published::scannet(folder / "");
  published::write(folder / "scannetv2_train.txt", "scene0010_00\nscene0001_01\n");
  EXPECT_THAT(open("scannet:" + folder.path().string())->read_cloud(0).labels, ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(open("scannet:" + folder.path().string())->size(), 2);
  published::write(folder / "scannetv2_train.txt", "scene0010_00\nscene0099_00\n");
  expect_error("scannet:" + folder.path().string(),
               "scene0099_00_vh_clean_2.ply is not there, expected the mesh of a scene");
  published::write(folder / "scannetv2_train.txt", "");
  expect_error("scannet:" + folder.path().string(), "scannetv2_train.txt is empty, expected names of scenes");
}

TEST(ScanNet, IgnoresTheTwoLabelsThatThePublishedScansHoldByMistake) {
  const TemporaryFolder folder;
  published::scannet(folder / "");
  published::scannet_scene(folder / "scans", "scene0001_00", {1, 50, 149, 2});
  EXPECT_THAT(open("scannet:" + folder.path().string())->read_cloud(0).labels, ElementsAre(0, -100, -100, 1));
}

TEST(ScanNet, SaysWhatIsWrongWithAScene) {
  const TemporaryFolder folder;
  published::scannet(folder / "");
  const std::string spec = "scannet:" + folder.path().string(), stem = "scans/scene0007_00/scene0007_00_vh_clean_2";
  published::scannet_scene(folder / "scans", "scene0007_00", {7, 41, 3});
  expect_error(spec, "vh_clean_2.labels.ply, vertex 1: the label is 41, expected an id of NYU40, 0 to 40");
  published::scannet_scene(folder / "scans", "scene0007_00", {7, 7, 3});
  fs::copy_file(folder / "scans/scene0010_00/scene0010_00_vh_clean_2.labels.ply", folder / (stem + ".labels.ply"),
                fs::copy_options::overwrite_existing);
  expect_error(spec, "has 4 labels, expected 3, one for each vertex of ");
  const std::string mesh = published::read(folder / (stem + ".ply"));
  published::write(folder / (stem + ".ply"), mesh.substr(0, mesh.size() - 20));
  expect_error(spec, "scene0007_00_vh_clean_2.ply, offset ");
  fs::remove(folder / (stem + ".labels.ply"));
  expect_error(spec, "vh_clean_2.labels.ply is not there, expected the labels of its vertices");
  expect_error("scannet:" + folder.path().string() + "/nothing", "is not there, expected a folder");
}

TEST(S3dis, ReadsTheObjectsOfARoom) {
  const TemporaryFolder folder;
  published::s3dis(folder / "");
  const auto train = open("s3dis:" + folder.path().string()),
             test = open("s3dis:" + folder.path().string(), Subset::test);
  ASSERT_EQ(train->size(), 2);
  ASSERT_EQ(test->size(), 1);
  EXPECT_EQ(train->info().classes, 13);
  const Cloud office = train->read_cloud(0);
  EXPECT_THAT(office.labels, ElementsAre(0, 0, 8, 8));
  EXPECT_EQ(office.points[2], (Point{1.5F, 2, 0.25F}));
  EXPECT_THAT(std::vector(office.features.begin() + 6, office.features.begin() + 9), ElementsAre(1, 0, 0.2F));
  EXPECT_THAT(train->read_cloud(1).labels, ElementsAre(12));  // stairs are clutter
  EXPECT_EQ(test->read_cloud(0).points[0], (Point{-1, -2, -0.35F}));
}

TEST(S3dis, ValidatesOnAnyArea) {
  const TemporaryFolder folder;
  published::s3dis(folder / "");
  EXPECT_EQ(open("s3dis:" + folder.path().string() + ":1", Subset::test)->read_cloud(0).size(), 4);
  EXPECT_EQ(open("s3dis:" + folder.path().string() + ":1")->size(), 2);
  expect_error("s3dis:" + folder.path().string() + ":7",
               "the area for validation is 7, expected s3dis:FOLDER:AREA with 1");
  expect_error("s3dis:" + folder.path().string() + ":4", "has no rooms for test, expected Area_4", Subset::test);
}

TEST(S3dis, MendsTheBytesThatHaveLostABit) {
  const TemporaryFolder folder;
  published::s3dis(folder / "");
  const std::string lines(
      "-9.1\x10 2\0"
      "0.\x10\x11 1\x10 103.0\x10 3\n",
      25);
  published::write(folder / "Area_2/hallway_3/Annotations/stairs_1.txt", lines);
  const Cloud cloud = open("s3dis:" + folder.path().string())->read_cloud(1);
  EXPECT_THAT(cloud.points, ElementsAre(Point{-9.1F, 2, 0.01F}));
  EXPECT_THAT(cloud.features, ElementsAre(10.0F / 255, 103.0F / 255, 3.0F / 255));
}

TEST(S3dis, SaysWhereALineIsWrong) {
  const TemporaryFolder folder;
  published::s3dis(folder / "");
  const std::string spec = "s3dis:" + folder.path().string();
  const auto broken = [&](const std::string& lines, const std::string& message) {
    published::write(folder / "Area_2/hallway_3/Annotations/stairs_1.txt", lines);
    expect_error(spec, "stairs_1.txt, offset " + message);
  };
  broken("0 0 0 1 2 3\n0 0 0 1 2\n0 0 0 1 2 3\n", "22: line 2 has 5 numbers, expected x y z r g b");
  broken("0 0 0 1 2 3\n0 0 18x 1 2 3\n", "16: '18x' is no number");
  broken("0 0 0 1 2 3\n0 0", "15: the file ends before its last row");
  broken("0 0 0 1 2 256\n", "10: line 1 has the colour 256, expected 0 to 255");
  broken("0 nan 0 1 2 3\n", "2: line 1 has the number nan");
  published::write(folder / "Area_2/hallway_3/Annotations/chiar_1.txt", "0 0 0 1 2 3\n");
  expect_error(spec, "chiar_1.txt is of class 'chiar', expected ceiling, floor");
  fs::remove_all(folder / "Area_2/hallway_3/Annotations");
  expect_error(spec, "Annotations is not there, expected a folder");
}

TEST(SemanticKitti, MapsLabelsToTheNineteenClasses) {
  const TemporaryFolder folder;
  published::kitti(folder / "");
  const auto train = open("kitti:" + folder.path().string()),
             test = open("kitti:" + folder.path().string(), Subset::test);
  EXPECT_EQ(train->info().classes, 19);
  EXPECT_EQ(train->info().input_shape, std::vector<int64_t>{1});
  ASSERT_EQ(train->size(), 2);
  ASSERT_EQ(test->size(), 1);
  const Cloud scan = train->read_cloud(0);
  EXPECT_THAT(scan.labels, ElementsAre(-100, 0, 0, 18, 8));  // a moving car is a car, a lane is road
  EXPECT_EQ(scan.points[2], (Point{2, -1, 2}));
  EXPECT_EQ(scan.features, std::vector<float>(5, 0.25F));
  EXPECT_THAT(test->read_cloud(0).labels, ElementsAre(8, 12, -100));
  EXPECT_GT(train->cost(0), train->cost(1));
}

TEST(SemanticKitti, SaysWhereAScanIsWrong) {
  const TemporaryFolder folder;
  published::kitti(folder / "");
  const std::string spec = "kitti:" + folder.path().string();
  const fs::path scan = folder / "sequences/00/velodyne/000001.bin",
                 labels = folder / "sequences/00/labels/000001.label";
  const std::string whole = published::read(scan);
  published::write(scan, whole.substr(0, 30));
  expect_error(spec, "000001.bin, offset 16: the file ends with 14 bytes, expected 16 bytes a point");
  published::write(scan, whole.substr(0, 16));
  expect_error(spec, "000001.label, offset 8: it has 2 labels, expected 1, one for each point of ");
  published::write(scan, published::bytes_of<float>({0, 0, 0, 0, 1, INFINITY, 0, 0}));
  expect_error(spec, "000001.bin, offset 20: point 1 has the coordinate inf");
  published::write(scan, whole);
  published::write(labels, published::bytes_of<uint32_t>({40, 12}));
  expect_error(spec, "000001.label, offset 4: point 1 has the label 12, expected one of the data set's");
  fs::remove(labels);
  expect_error(spec, "000001.label is not there, expected the labels of a scan");
  fs::remove_all(folder / "sequences/08");
  expect_error(spec, "has no scans for test, expected 08", Subset::test);
  fs::remove_all(folder / "sequences");
  expect_error(spec, "sequences is not there, expected a folder");
}

TEST(NuScenes, FindsScansAndScenesInItsTables) {
  const TemporaryFolder folder;
  published::nuscenes(folder / "");
  const auto train = open("nuscenes:" + folder.path().string()),
             test = open("nuscenes:" + folder.path().string(), Subset::test);
  EXPECT_EQ(train->info().classes, 16);
  ASSERT_EQ(train->size(), 1);
  ASSERT_EQ(test->size(), 1);
  const Cloud scan = train->read_cloud(0);
  EXPECT_THAT(scan.labels, ElementsAre(3, -100, 10));  // a car, noise, a surface to drive on
  EXPECT_THAT(scan.features, ElementsAre(0.2F, 1, 0));
  EXPECT_EQ(scan.points[2], (Point{4, 5, 6}));
}

TEST(NuScenes, SaysWhatItsTablesLack) {
  const TemporaryFolder folder;
  published::nuscenes(folder / "");
  const std::string spec = "nuscenes:" + folder.path().string();
  const auto broken = [&](const std::string& table, const std::string& contents, const std::string& message) {
    const std::string whole = published::read(folder / ("v1.0-mini/" + table));
    published::write(folder / ("v1.0-mini/" + table), contents);
    expect_error(spec, message);
    published::write(folder / ("v1.0-mini/" + table), whole);
  };
  broken("sample.json", R"([{"token": "a", "scene_)", "sample.json, offset 23: parse error");
  broken("sample.json", R"([{"token": "a"}])", "an object has no text under 'scene_token', expected one");
  broken("sample.json", R"({"token": "a", "scene_token": "s1"})", "an object, expected an array of objects");
  broken("sample.json", R"([1])", "a value, expected an array of objects");
  broken("sample.json", "[]", "sample.json has no 'a', expected what other tables name");
  broken("sample_data.json", "[]", "sample_data.json has 0 of the 2 scans that lidarseg.json names");
  broken("scene.json", R"([{"token": "s1", "name": "s"}])", "has the scene 's', expected a name such as scene-0103");
  published::write(folder / "lidarseg/v1.0-mini/d1_lidarseg.bin", "\x01\x20\x02");
  expect_error(spec, "d1_lidarseg.bin, offset 1: point 1 has the label 32");
  fs::remove(folder / "samples/LIDAR_TOP/1.pcd.bin");
  expect_error(spec, "1.pcd.bin is not there, expected a scan");
  fs::remove_all(folder / "v1.0-mini");
  expect_error(spec, "v1.0-mini is not there, expected a folder");
}

TEST(ModelNet, StrewsPointsEvenlyOverTheMesh) {
  const TemporaryFolder folder;
  published::modelnet(folder / "");
  const auto train = open("modelnet40:" + folder.path().string() + ":3000");
  EXPECT_TRUE(train->info().whole_clouds);
  EXPECT_EQ(train->info().class_names, (std::vector<std::string>{"plate", "pyramid"}));
  EXPECT_THAT(train->targets(), ElementsAre(0, 1, 1));
  const Cloud plate = train->read_cloud(0);
  ASSERT_EQ(plate.size(), 3000);
  EXPECT_EQ(plate.points, open("modelnet40:" + folder.path().string() + ":3000")->read_cloud(0).points);
  double farthest = 0;
  int quarter = 0;
  for (const auto& [x, y, z] : plate.points) {
    EXPECT_EQ(z, 0);
    farthest = std::max<double>(farthest, std::hypot(x, y));
    quarter += x > 0 && y > 0 ? 1 : 0;
  }
  EXPECT_NEAR(farthest, 1, 1e-6);
  EXPECT_NEAR(quarter, 750, 75);
  // Of the pyramid's area the slanted face has sqrt(3) / (3 + sqrt(3)); there x + y + z is largest.
  const Cloud pyramid = train->read_cloud(1);
  float most = -10;
  for (const auto& [x, y, z] : pyramid.points) most = std::max(most, x + y + z);
  const auto slanted =
      std::ranges::count_if(pyramid.points, [&](const Point& p) { return p[0] + p[1] + p[2] > most - 1e-5F; });
  EXPECT_NEAR(static_cast<double>(slanted), 3000 * std::sqrt(3) / (3 + std::sqrt(3)), 100);
  EXPECT_NE(pyramid.points, train->read_cloud(2).points);
}

TEST(ModelNet, TakesMeshesWithCommentsAndColours) {
  const TemporaryFolder folder;
  published::modelnet(folder / "");
  const std::string spec = "modelnet40:" + folder.path().string() + ":100";
  fs::remove(folder / "plate/train/plate_0001.off");
  const auto points = [&](const std::string& mesh, const char* name = "plate_0001.off") {
    const fs::path file = folder / "plate/train" / name;
    published::write(file, mesh);
    const auto train = open(spec);
    const auto read = train->read_cloud(0).points;
    EXPECT_EQ(read_cloud_file(file, train->info()).size(), 100);
    fs::remove(file);
    return read;
  };
  const std::string vertices = "0 0 0\n4 0 0\n4 4 0\n0 4 1\n";
  const auto plain = points("OFF\n4 2 0\n" + vertices + "3 0 1 2\n3 0 2 3\n");
  ASSERT_EQ(plain.size(), 100);
  EXPECT_EQ(points("OFF\n4 2 0\n" + vertices + "3 0 1 2\n3 0 2 3\n", "plate_0001.OFF"), plain);
  EXPECT_EQ(points("# by hand\nOFF # its kind\n# sizes\n4 2 0\n" + vertices + "#\n3 0 1 2\n3 0 2 3 # last"), plain);
  EXPECT_EQ(points("OFF\n4 2 0\n" + vertices + "3 0 1 2 255 0 0\n3 0 2 3 3 0 1"), plain);
  EXPECT_EQ(points("COFF\r\n4 2 0\r\n0 0 0 255 0 0 255\r\n4 0 0 0 0 0 255\r\n4 4 0 0.5 1 1 1\r\n0 4 1 0\r\n"
                   "3 0 1 2\r\n3 0 2 3\r\n"),
            plain);
  EXPECT_EQ(points("NOFF 4 2 0\n0 0 0 0 0 1\n4 0 0 0 0 1\n4 4 0 0 0 1\n0 4 1 0 0 1\n3 0 1 2\n3 0 2 3\n"), plain);
}

TEST(ModelNet, SaysWhereAMeshIsWrong) {
  const TemporaryFolder folder;
  published::modelnet(folder / "");
  const std::string spec = "modelnet40:" + folder.path().string();
  const auto broken = [&](const std::string& mesh, const std::string& message) {
    published::write(folder / "plate/train/plate_0001.off", mesh);
    expect_error(spec, "plate_0001.off" + message);
  };
  const std::string vertices = "0 0 0\n4 0 0\n4 4 0\n0 4 0\n";
  broken("ply\n", ", offset 0: this is no OFF file");
  broken("OFF\n9999999 1 0\n" + vertices, ", offset 4: the number of vertices is 1e+07, expected a whole number from");
  broken("OFF\n4 1 0\n" + vertices + "3 0 1 4\n", ", offset 40: a corner of a face is 4, expected a whole number");
  broken("OFF\n4 1 0\n" + vertices + "2 0 1\n", ", offset 34: the number of a face's corners is 2");
  broken("OFF\n4 1 0\n" + vertices + "3 0 1", ", offset 39: the file ends before its last row");
  broken("OFF\n4 1 0\n" + vertices + "3 0 1 2\n7\n", ", offset 42: there is more behind the last face");
  broken("OFF\n4 1 0\n" + vertices + "3 0 1 1\n", ": the mesh has the area 0, expected it above 0");
  broken("OFF\n4 1 0\n0 0 0\n4 0 x\n0 0 0\n0 0 0\n", ", offset 20: 'x' is no number");
  expect_error(spec + ":0", "there are 0 points a mesh, expected modelnet40:FOLDER:POINTS");
  fs::remove_all(folder / "plate/test");
  expect_error(spec, "test is not there, expected a folder", Subset::test);
}

TEST(ModelNet, GivesATargetForEachCloudThatHasPoints) {
  const TemporaryFolder folder;
  published::modelnet(folder / "");
  const auto train = open("modelnet40:" + folder.path().string() + ":50");
  Loader loader(train, Order::sequential(3), {.batch = 3, .replicas = 2});
  double weight = 0;
  for (int64_t replica = 0; replica < 2; ++replica) {
    const Batch batch = loader.next(replica);
    EXPECT_EQ(batch.targets.size(0), batch.count);
    for (int64_t i = 0; i < batch.count; ++i)
      EXPECT_EQ(batch.targets[i].item<int64_t>(), train->label(batch.ids[i].item<int64_t>()));
    weight += batch.weight;
  }
  EXPECT_EQ(weight, 3);
  Loader empty(train, Order::sequential(3), {.batch = 3, .transforms = Transforms::parse("drop:0.999999")});
  EXPECT_EQ(empty.next().targets.size(0), 0);
  EXPECT_EQ(first_of(train, 2)->targets(), (std::vector<int64_t>{0, 1}));
}

TEST(PublishedClouds, AreNamedByTheirKinds) {
  for (const char* spec : {"rooms", "rooms:4", "scannet:x", "s3dis:x:2", "kitti:x", "nuscenes:x", "modelnet40:x"})
    EXPECT_TRUE(names_clouds(spec)) << spec;
  for (const char* spec : {"roomsy", "mnist:scannet", "scannets"}) EXPECT_FALSE(names_clouds(spec)) << spec;
}

}  // namespace
}  // namespace lockstep::data
