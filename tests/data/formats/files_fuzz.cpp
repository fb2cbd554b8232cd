// SPDX-License-Identifier: Apache-2.0
// libFuzzer on the files of data sets: IDX, CIFAR-10, S3DIS' text, ModelNet's OFF, SemanticKITTI's clouds, nuScenes'
// tables and clouds. Any bytes in the place of one file are read or refused with an Error.
//
//     ./dev test --preset asan --label fuzz
#include <array>
#include <functional>

#include "fuzzing.h"
#include "lockstep/data/loader.h"
#include "support/published_clouds.h"

namespace {

using namespace lockstep;
namespace fs = std::filesystem;

std::string big_endian(std::initializer_list<uint32_t> words) {
  std::string out;
  for (const uint32_t word : words)
    for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(word >> shift);
  return out;
}

void mnist(const fs::path& folder) {
  data::published::write(folder / "train-images-idx3-ubyte", big_endian({0x803, 2, 2, 2}) + "abcdefgh");
  data::published::write(folder / "train-labels-idx1-ubyte", big_endian({0x801, 2}) + std::string("\1\2"));
}

void cifar(const fs::path& folder) {
  for (int batch = 1; batch <= 5; ++batch)
    data::published::write(folder / ("data_batch_" + std::to_string(batch) + ".bin"), std::string(3073, '\1'));
}

// A data set, and the file of it that the fuzzer writes.
struct Kind {
  const char* name;
  void (*make)(const fs::path& folder);
  const char* file;
};
constexpr std::array kKinds{
    Kind{"mnist", mnist, "train-images-idx3-ubyte"},
    Kind{"mnist", mnist, "train-labels-idx1-ubyte"},
    Kind{"cifar10", cifar, "data_batch_3.bin"},
    Kind{"s3dis", data::published::s3dis, "Area_1/office_1/Annotations/chair_1.txt"},
    Kind{"modelnet40", data::published::modelnet, "pyramid/train/pyramid_0002.off"},
    Kind{"kitti", data::published::kitti, "sequences/00/velodyne/000000.bin"},
    Kind{"kitti", data::published::kitti, "sequences/00/labels/000000.label"},
    Kind{"nuscenes", data::published::nuscenes, "v1.0-mini/scene.json"},
    Kind{"nuscenes", data::published::nuscenes, "v1.0-mini/sample_data.json"},
    Kind{"nuscenes", data::published::nuscenes, "samples/LIDAR_TOP/1.pcd.bin"},
};

void read_all(const std::string& name) {
  const auto dataset = data::open_dataset(name, data::Subset::train, {.image_size = 2, .voxel = 0.5});
  data::Loader loader(dataset, data::Order::sequential(dataset->size()), {.batch = dataset->size(), .workers = 0});
  static_cast<void>(loader.next());
}

}  // namespace

// The first byte chooses the file.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const Kind& kind = kKinds[data[0] % kKinds.size()];
  const std::string name = std::string(kind.name) + "_" + std::to_string(data[0] % kKinds.size());
  const fs::path folder = fs::path(test::file_with({}, name + "/made")).parent_path();
  static std::array<bool, kKinds.size()> made{};
  if (!std::exchange(made[data[0] % kKinds.size()], true)) {
    kind.make(folder);
    read_all(std::string(kind.name) + ":" + folder.string());  // as it is published, it can be read
    test::check(fs::exists(folder / kind.file), "that the data set has the file");
  }
  test::file_with({data + 1, size - 1}, name + "/" + kind.file);
  test::read_or_refuse([&] { read_all(std::string(kind.name) + ":" + folder.string()); });
  return 0;
}
