// SPDX-License-Identifier: Apache-2.0
#include "data/clouds/scene_cache.h"

#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "lockstep/data/loader.h"
#include "support/files.h"
#include "support/published_clouds.h"

namespace lockstep::data {
namespace {

using testing::HasSubstr;

/// Rooms that count how often they are made.
class Counted : public CloudDataset {
 public:
  Counted() : CloudDataset(rooms()->info()), rooms_(rooms()) {}
  int64_t cost(int64_t id) const override { return rooms_->cost(id); }
  std::string source(int64_t id) const override { return rooms_->source(id); }
  mutable std::atomic<int> made = 0;

 protected:
  Cloud measure(int64_t id) const override {
    ++made;
    return rooms_->read_cloud(id);
  }

 private:
  static std::shared_ptr<const CloudDataset> rooms() {
    return std::dynamic_pointer_cast<const CloudDataset>(
        open_dataset("rooms:6:3", Subset::train, {.seed = 3, .voxel = 0.3}));
  }
  std::shared_ptr<const CloudDataset> rooms_;
};

/// Two epochs.
std::vector<Batch> batches(const std::shared_ptr<const CloudDataset>& scenes, const std::string& transforms,
                           const std::string& cache) {
  Loader loader(scenes, Order::sequential(6),
                {.batch = 3, .transforms = Transforms::parse(transforms), .seed = 4, .workers = 0, .cache = cache});
  std::vector<Batch> out;
  for (int step = 0; step < 4; ++step) out.push_back(loader.next());
  return out;
}

void expect_equal(const std::vector<Batch>& a, const std::vector<Batch>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(at::equal(a[i].coordinates, b[i].coordinates));
    EXPECT_TRUE(at::equal(a[i].inputs, b[i].inputs));
    EXPECT_TRUE(at::equal(a[i].targets, b[i].targets));
  }
}

constexpr const char* kAll = "turn,jitter:0.01,drop:0.1,mix:0.5";

TEST(SceneCache, ReadsEachSceneOnceAndChangesNoBit) {
  for (const std::string transforms : {"none", kAll}) {
    const TemporaryFolder folder;
    const auto scenes = std::make_shared<Counted>();
    const auto plain = batches(scenes, transforms, "");
    scenes->made = 0;
    expect_equal(batches(scenes, transforms, folder.path().string()), plain);
    EXPECT_EQ(scenes->made, 6);
    expect_equal(batches(scenes, transforms, folder.path().string()), plain);
    EXPECT_EQ(scenes->made, 6);
  }
}

TEST(SceneCache, KeepsOneSceneForEachSourceAndSize) {
  const TemporaryFolder folder, data;
  published::kitti(data / "");
  const auto read = [&](double voxel) {
    const auto scenes = std::dynamic_pointer_cast<const CloudDataset>(
        open_dataset("kitti:" + data.path().string(), Subset::train, {.voxel = voxel}));
    Loader loader(scenes, Order::sequential(2), {.batch = 2, .workers = 0, .cache = folder.path().string()});
    return loader.next();
  };
  const auto entries = [&] { return std::distance(fs::directory_iterator(folder.path().string()), {}); };
  EXPECT_EQ(read(0.5).inputs.size(0), 7);
  EXPECT_EQ(entries(), 2);
  EXPECT_EQ(read(100).inputs.size(0), 2);
  EXPECT_EQ(entries(), 4);
  const fs::path scan = data / "sequences/00/velodyne/000001.bin";
  published::write(scan, published::bytes_of<float>({0, 0, 0, 0.5F, 0, 0, 0, 1}));
  fs::last_write_time(scan, fs::last_write_time(scan) + std::chrono::seconds(5));
  EXPECT_EQ(read(0.5).inputs.size(0), 6);  // the scan that was changed, anew
  EXPECT_EQ(entries(), 5);
}

TEST(SceneCache, TellsSidesApartThatDifferInTheSeventhDigit) {
  const TemporaryFolder folder;
  const auto read = [&](double voxel, const std::string& cache) {
    const auto rooms =
        std::dynamic_pointer_cast<const CloudDataset>(open_dataset("rooms:1:3", Subset::train, {.voxel = voxel}));
    return Loader(rooms, Order::sequential(1), {.batch = 1, .workers = 0, .cache = cache}).next();
  };
  for (const double voxel : {0.1, 0.1000004}) {
    const Batch kept = read(voxel, folder.path().string()), plain = read(voxel, "");
    EXPECT_TRUE(at::equal(kept.coordinates, plain.coordinates)) << voxel;
    EXPECT_TRUE(at::equal(kept.inputs, plain.inputs)) << voxel;
  }
}

TEST(SceneCache, EntriesCanBeReadByWhomeverTheUmaskLets) {
  const TemporaryFolder folder;
  const SceneCache cache(folder.path().string());
  const mode_t before = umask(0027);
  cache.keep("key", {"part"});
  umask(before);
  EXPECT_EQ(fs::status(cache.file_of("key")).permissions(), static_cast<fs::perms>(0640));
}

TEST(SceneCache, MakesDamagedEntriesAnew) {
  const TemporaryFolder folder;
  const auto scenes = std::make_shared<Counted>();
  const auto plain = batches(scenes, "none", "");
  batches(scenes, "none", folder.path().string());
  std::vector<fs::path> entries;
  for (const auto& entry : fs::directory_iterator(folder.path().string())) entries.push_back(entry.path());
  ASSERT_EQ(entries.size(), 6);
  const std::string whole = published::read(entries[0]);
  std::string flipped = whole;
  flipped[whole.size() / 2] ^= 1;
  scenes->made = 0;
  int damages = 0;
  for (const std::string& damaged : {std::string(), whole.substr(0, 7), whole.substr(0, whole.size() - 1), flipped,
                                     whole + "x", "LSSCENE1" + whole, published::read(entries[1])}) {
    published::write(entries[0], damaged);
    testing::internal::CaptureStderr();
    expect_equal(batches(scenes, "none", folder.path().string()), plain);
    EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("it is made anew"));
    EXPECT_EQ(scenes->made, ++damages);
    EXPECT_EQ(published::read(entries[0]), whole);
  }
}

/// What is left of a writer that was killed is neither read nor in the way, and is gone after a while.
TEST(SceneCache, TakesNoHeedOfHalfWrittenFiles) {
  const TemporaryFolder folder;
  const auto scenes = std::make_shared<Counted>();
  const SceneCache cache(folder.path().string());
  const fs::path fresh = folder / "a.scene.partial", old = folder / "b.scene.partial";
  published::write(fresh, "half");
  published::write(old, "half");
  fs::last_write_time(old, fs::last_write_time(old) - std::chrono::hours(2));
  expect_equal(batches(scenes, "none", folder.path().string()), batches(scenes, "none", ""));
  EXPECT_TRUE(fs::exists(fresh));
  EXPECT_FALSE(fs::exists(old));
}

TEST(SceneCache, IsSharedByProcessesThatFillItAtOnce) {
  const TemporaryFolder folder;
  const auto scenes = std::make_shared<Counted>();
  std::vector<pid_t> children;
  for (int child = 0; child < 2; ++child) {
    children.push_back(fork());
    if (children.back() != 0) continue;
    bool same = true;
    for (int round = 0; round < 20 && same; ++round) {
      // Each writes all the entries, whatever the other has written.
      const SceneCache cache(folder.path().string());
      for (int64_t id = 0; id < 6; ++id) {
        const Cloud cloud = scenes->read_cloud(id);
        cache.keep("test " + std::to_string(id),
                   {published::bytes_of(cloud.points), published::bytes_of(cloud.labels)});
        const auto parts = cache.find("test " + std::to_string(id));
        same = same && parts && (*parts)[0] == published::bytes_of(cloud.points);
      }
    }
    _exit(same ? 0 : 1);
  }
  for (const pid_t child : children) {
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path().string()), {}), 6);
}

TEST(SceneCache, WarnsOnceWhereItCannotWriteAndTrainsOn) {
  const TemporaryFolder folder;
  const auto scenes = std::make_shared<Counted>();
  const SceneCache cache(folder.path().string());
  fs::remove_all(folder.path().string());
  testing::internal::CaptureStderr();
  for (int64_t id = 0; id < 2; ++id)
    EXPECT_EQ(cached_cloud(cache, scenes->source(id), 3, [&] { return scenes->read_cloud(id); }).points,
              scenes->read_cloud(id).points);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("can't be written: No such file or directory; training goes on without"));
  EXPECT_EQ(std::ranges::count(said, '\n'), 1);
  EXPECT_THAT(error_of([] { SceneCache("/proc/nowhere"); }), HasSubstr("/proc/nowhere can't be made"));
}

TEST(SceneCache, IsForClouds) {
  const auto images = open_dataset("synthetic:1x8x8:4:20", Subset::train);
  EXPECT_THAT(error_of([&] { Loader(images, Order::sequential(20), {.batch = 4, .cache = "/tmp"}); }),
              HasSubstr("the cache is for clouds"));
}

}  // namespace
}  // namespace lockstep::data
