// SPDX-License-Identifier: Apache-2.0
// CIFAR-10, binary version: records of one byte for the class and 3 x 32 x 32 for the image, channel after channel.
#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

#include "data/formats/file.h"
#include "data/memory_dataset.h"
#include "lockstep/data/registry.h"

namespace lockstep::data {
namespace {

constexpr int64_t kImageBytes = 3 * 32 * 32, kRecordBytes = 1 + kImageBytes, kCifarClasses = 10;

fs::path folder_of_files(const fs::path& folder) {
  std::error_code ignored;
  const fs::path inner = folder / "cifar-10-batches-bin";
  return fs::is_directory(inner, ignored) ? inner : folder;
}

std::vector<fs::path> files_of(const fs::path& folder, Subset subset) {
  std::vector<fs::path> files;
  const std::vector<std::string> names =
      subset == Subset::test ? std::vector<std::string>{"test_batch.bin"}
                             : std::vector<std::string>{"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                                        "data_batch_4.bin", "data_batch_5.bin"};
  for (const std::string& name : names) {
    const fs::path found = find_file(folder, {name, name + ".gz"});
    require(!found.empty(), "open_dataset", folder.string(), " has no ", name,
            ", expected the files of CIFAR-10's binary version");
    files.push_back(found);
  }
  return files;
}

void read_records(InputFile& file, std::vector<uint8_t>& images, std::vector<int64_t>& labels) {
  std::vector<uint8_t> record(kRecordBytes);
  for (int64_t number = 0;; ++number) {
    const int64_t begin = file.offset(), got = file.read_some(record);
    if (got == 0) {
      if (number == 0) file.fail_at(0, "the file is empty, expected records of ", kRecordBytes, " bytes");
      return;
    }
    if (got < kRecordBytes)
      file.fail_at(begin, "the file ends after ", got, " of the ", kRecordBytes, " bytes of record ", number,
                   "; it is truncated, copy or download it again");
    if (record[0] >= kCifarClasses)
      file.fail_at(begin, "the label of record ", number, " is ", int{record[0]}, ", expected a class in [0, ",
                   kCifarClasses, ")");
    labels.push_back(record[0]);
    images.insert(images.end(), record.begin() + 1, record.end());
  }
}

DatasetPointer open_cifar10(std::string_view folder, Subset subset, const DatasetOptions& /*options*/) {
  require_folder(folder);
  std::vector<uint8_t> images;
  std::vector<int64_t> labels;
  for (const fs::path& path : files_of(folder_of_files(folder), subset)) {
    InputFile file(path);
    read_records(file, images, labels);
  }
  const auto count = static_cast<int64_t>(labels.size());
  const at::Tensor bytes = at::empty({count, 3, 32, 32}, at::kByte);
  std::ranges::copy(images, bytes.mutable_data_ptr<uint8_t>());
  DatasetInfo info{
      .name = "cifar10",
      .size = count,
      .input_shape = {3, 32, 32},
      .classes = kCifarClasses,
      .class_names = {"airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"}};
  return std::make_shared<MemoryDataset>(std::move(info), bytes, std::move(labels));
}

bool holds_cifar10(const fs::path& folder) {
  const fs::path inner = folder_of_files(folder);
  return !find_file(inner, {"data_batch_1.bin", "data_batch_1.bin.gz", "test_batch.bin", "test_batch.bin.gz"}).empty();
}

}  // namespace

DatasetKind cifar10_kind() {
  return {.name = "cifar10",
          .usage = "cifar10:FOLDER",
          .description = "data_batch_1.bin ... and test_batch.bin, also in a sub-folder cifar-10-batches-bin",
          .open = open_cifar10,
          .recognises = holds_cifar10,
          .contents = "CIFAR-10's binary files (data_batch_1.bin)"};
}

}  // namespace lockstep::data
