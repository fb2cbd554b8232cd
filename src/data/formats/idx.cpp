// SPDX-License-Identifier: Apache-2.0
// IDX: two zero bytes, the type of the values (8: bytes), the number of dimensions, each dimension in four bytes, the
// values.
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <utility>

#include "data/formats/file.h"
#include "data/memory_dataset.h"
#include "lockstep/data/registry.h"

namespace lockstep::data {
namespace {

constexpr const char* kFashionMnistFolder = "/usr/share/datasets/fashion-mnist";
constexpr uint32_t kImageMagic = 0x803, kLabelMagic = 0x801;
constexpr int64_t kIdxClasses = 10;
// No data set of these has more; a header that says so is corrupt, and must not ask for all memory.
constexpr uint32_t kMostImages = 100'000'000, kMostPixels = 1 << 14;
constexpr int64_t kMostBytes = int64_t{1} << 40;

std::vector<std::string> file_names(Subset subset, const std::string& kind) {
  const std::string stem = text(subset == Subset::train ? "train-" : "t10k-", kind);
  const std::string type = kind == "images" ? "idx3-ubyte" : "idx1-ubyte";
  std::vector<std::string> names;
  for (const char* dash : {"-", "."})
    for (const char* ending : {"", ".gz"}) names.push_back(text(stem, dash, type, ending));
  return names;
}

fs::path require_file(const fs::path& folder, Subset subset, const std::string& kind) {
  const auto names = file_names(subset, kind);
  fs::path found = find_file(folder, names);
  require(!found.empty(), "open_dataset", folder.string(), " has no ", names[0],
          ", expected it there, plain or as .gz");
  return found;
}

void check_magic(InputFile& file, uint32_t expected, const char* what) {
  const uint32_t magic = file.read_big_endian("the magic number");
  if (magic != expected) file.fail_at(0, "the magic number is ", magic, ", expected ", expected, " for ", what);
}

struct Images {
  at::Tensor bytes;
  int64_t count, height, width;
};

Images read_images(InputFile& file) {
  check_magic(file, kImageMagic, "an IDX file of images");
  const uint32_t count = file.read_big_endian("the number of images");
  const uint32_t height = file.read_big_endian("the height"), width = file.read_big_endian("the width");
  if (count == 0 || count > kMostImages)
    file.fail_at(4, "the header says ", count, " images, expected 1 to ", kMostImages);
  if (height == 0 || width == 0 || height > kMostPixels || width > kMostPixels)
    file.fail_at(8, "the header says images of ", height, " x ", width, ", expected sides of 1 to ", kMostPixels);
  if (int64_t{count} * height * width > kMostBytes)
    file.fail_at(4, "the header says ", count, " images of ", height, " x ", width, ", expected at most ", kMostBytes,
                 " bytes of them");
  Images images{at::empty({count, 1, height, width}, at::kByte), count, height, width};
  file.read({images.bytes.mutable_data_ptr<uint8_t>(), static_cast<size_t>(images.bytes.numel())}, "the images");
  file.expect_end();
  return images;
}

std::vector<int64_t> read_labels(InputFile& file, int64_t images) {
  check_magic(file, kLabelMagic, "an IDX file of labels");
  const int64_t count = file.read_big_endian("the number of labels");
  if (count != images)
    file.fail_at(4, "the header says ", count, " labels, expected ", images, ", one for each image beside it");
  std::vector<uint8_t> bytes(count);
  const int64_t begin = file.offset();
  file.read(bytes, "the labels");
  for (int64_t i = 0; i < count; ++i)
    if (bytes[i] >= kIdxClasses)
      file.fail_at(begin + i, "label ", i, " is ", int{bytes[i]}, ", expected a class in [0, ", kIdxClasses, ")");
  file.expect_end();
  return {bytes.begin(), bytes.end()};
}

std::vector<std::string> names_of(const std::string& name) {
  if (name != "fashion-mnist") return {};
  return {"t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot"};
}

DatasetPointer open_idx(const std::string& name, const fs::path& folder, Subset subset) {
  require_folder(folder);
  InputFile image_file(require_file(folder, subset, "images"));
  InputFile label_file(require_file(folder, subset, "labels"));
  const Images images = read_images(image_file);
  auto labels = read_labels(label_file, images.count);
  DatasetInfo info{.name = name,
                   .size = images.count,
                   .input_shape = {1, images.height, images.width},
                   .classes = kIdxClasses,
                   .class_names = names_of(name)};
  return std::make_shared<MemoryDataset>(std::move(info), images.bytes, std::move(labels));
}

bool holds_idx(const fs::path& folder) {
  return !find_file(folder, file_names(Subset::train, "images")).empty() ||
         !find_file(folder, file_names(Subset::test, "images")).empty();
}

/// MNIST and Fashion-MNIST have the same files. Only the folder's name can tell which it is.
bool is_called_fashion(const fs::path& folder) {
  std::string name = name_of(folder);
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return name.find("fashion") != std::string::npos;
}

DatasetPointer open_fashion_mnist(std::string_view folder, Subset subset, const DatasetOptions& /*options*/) {
  if (!folder.empty()) return open_idx("fashion-mnist", folder, subset);
  require(holds_idx(kFashionMnistFolder), "open_dataset", "no Fashion-MNIST in ", kFashionMnistFolder,
          "; on Debian and Ubuntu: apt-get install dataset-fashion-mnist; or name a folder: fashion-mnist:FOLDER");
  return open_idx("fashion-mnist", kFashionMnistFolder, subset);
}

DatasetPointer open_mnist(std::string_view folder, Subset subset, const DatasetOptions& /*options*/) {
  return open_idx("mnist", folder, subset);
}

}  // namespace

DatasetKind fashion_mnist_kind() {
  return {.name = "fashion-mnist",
          .usage = "fashion-mnist[:FOLDER]",
          .description = "IDX files under their usual names, plain or gzip; alone: those of Debian's package",
          .open = open_fashion_mnist,
          .recognises = [](const fs::path& path) { return holds_idx(path) && is_called_fashion(path); }};
}

DatasetKind mnist_kind() {
  return {.name = "mnist",
          .usage = "mnist:FOLDER",
          .description = "IDX files under their usual names, plain or gzip",
          .open = open_mnist,
          .recognises = holds_idx,
          .contents = "IDX files (train-images-idx3-ubyte)"};
}

}  // namespace lockstep::data
