// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cctype>
#include <string>

#include "data/readers.h"
#include "lockstep/data/dataset.h"

namespace lockstep::data {
namespace {

constexpr const char* kFashionMnistFolder = "/usr/share/datasets/fashion-mnist";
constexpr const char* kExpected =
    ", expected fashion-mnist[:FOLDER], mnist:FOLDER, cifar10:FOLDER, images:FOLDER, tensors:FILE.pt, "
    "synthetic:SHAPE:CLASSES:COUNT, rooms[:SCENES[:METRES]], scannet:FOLDER, s3dis:FOLDER[:AREA], kitti:FOLDER, "
    "nuscenes:FOLDER, modelnet40:FOLDER[:POINTS], or a folder or file of one of the kinds before rooms";

/// MNIST and Fashion-MNIST have the same files; only the folder's name can tell which it is.
std::string name_by_folder(const fs::path& folder) {
  std::string name = name_of(folder);
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return name.find("fashion") != std::string::npos ? "fashion-mnist" : "mnist";
}

DatasetPointer open_default_fashion_mnist(Split split) {
  require(holds_idx(kFashionMnistFolder), "open_dataset", "no Fashion-MNIST in ", kFashionMnistFolder,
          "; on Debian and Ubuntu: apt-get install dataset-fashion-mnist; or name a folder: fashion-mnist:FOLDER");
  return open_idx("fashion-mnist", kFashionMnistFolder, split);
}

DatasetPointer open_path(const fs::path& path, Split split, const DatasetOptions& options) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return open_tensors(path, split);
  if (holds_idx(path)) return open_idx(name_by_folder(path), path, split);
  if (holds_cifar10(path)) return open_cifar10(path, split);
  if (holds_images(path)) return open_images(path, split, options);
  fail(
      "open_dataset", path.string(),
      " holds no data set, expected IDX files (train-images-idx3-ubyte), CIFAR-10's binary files (data_batch_1.bin) or "
      "a folder of images for each class");
}

}  // namespace

bool names_clouds(std::string_view spec) {
  constexpr std::array kinds{"rooms", "scannet", "s3dis", "kitti", "nuscenes", "modelnet40"};
  return std::ranges::count(kinds, spec.substr(0, spec.find(':'))) > 0;
}

std::shared_ptr<const Dataset> open_dataset(std::string_view spec, Split split, const DatasetOptions& options) {
  if (spec == "fashion-mnist") return open_default_fashion_mnist(split);
  if (spec == "rooms") return open_rooms("", split, options);
  std::error_code ignored;
  if (fs::exists(fs::path(spec), ignored)) return open_path(spec, split, options);
  const size_t colon = spec.find(':');
  const std::string_view kind = spec.substr(0, colon);
  const std::string_view rest = colon == std::string_view::npos ? "" : spec.substr(colon + 1);
  if (!rest.empty()) {
    if (kind == "fashion-mnist" || kind == "mnist") return open_idx(std::string(kind), rest, split);
    if (kind == "cifar10") return open_cifar10(rest, split);
    if (kind == "images") return open_images(rest, split, options);
    if (kind == "tensors") return open_tensors(rest, split);
    if (kind == "synthetic") return open_synthetic(rest, split, options);
    if (kind == "rooms") return open_rooms(rest, split, options);
    if (kind == "scannet") return open_scannet(rest, split, options);
    if (kind == "s3dis") return open_s3dis(rest, split, options);
    if (kind == "kitti") return open_semantic_kitti(rest, split, options);
    if (kind == "nuscenes") return open_nuscenes(rest, split, options);
    if (kind == "modelnet40") return open_modelnet(rest, split, options);
  }
  const bool is_path = spec.find('/') != std::string_view::npos || spec.ends_with(".pt");
  fail("open_dataset", "got '", spec, is_path ? "', which is not there" : "'", kExpected);
}

}  // namespace lockstep::data
