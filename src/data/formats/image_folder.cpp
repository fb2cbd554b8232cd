// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "data/formats/file.h"
#include "data/formats/resize.h"
#include "data/memory_dataset.h"
#include "lockstep/base/detail/guarded.h"
#include "lockstep/data/registry.h"
#include "lockstep/pictures/read_image.h"

namespace lockstep::data {
namespace {

constexpr int64_t kSampled = 1024;

class ImageFolder : public Dataset {
 public:
  ImageFolder(DatasetInfo info, std::vector<fs::path> files, std::vector<int64_t> classes, int64_t cache_bytes)
      : Dataset(std::move(info)), files_(std::move(files)), classes_(std::move(classes)), cache_left_(cache_bytes) {
    cache_ = std::make_unique<Cached[]>(files_.size());
  }

  Normalization normalization() const override {
    std::call_once(once_, [this] {
      const int64_t samples = std::min(size(), kSampled), area = info().input_numel() / 3;
      ByteMoments moments(3);
      for (int64_t i = 0; i < samples; ++i) moments.add(pixels(i * size() / samples).get(), area);
      normalization_ = moments.normalization();
    });
    return normalization_;
  }
  bool holds_bytes() const override { return true; }

 protected:
  void read_inputs(std::span<const int64_t> ids, Layout layout, Affine affine, float* inputs) const override {
    const int64_t numel = info().input_numel();
    for (const int64_t id : ids) {
      write_example<uint8_t>(pixels(id).get(), 3, numel / 3, layout, affine, inputs);
      inputs += numel;
    }
  }

  void read_bytes(std::span<const int64_t> ids, Layout layout, uint8_t* inputs) const override {
    const int64_t numel = info().input_numel();
    for (const int64_t id : ids) {
      write_example(pixels(id).get(), 3, numel / 3, layout, inputs);
      inputs += numel;
    }
  }

  void fetch_targets(std::span<const int64_t> ids, int64_t* targets) const override {
    for (const int64_t id : ids) *targets++ = classes_[id];
  }

 private:
  using Pixels = std::shared_ptr<const uint8_t[]>;

  // Two threads that want the same image at once both decode it, and one result is kept.
  struct Cached {
    Mutex mutex;
    Pixels pixels LOCKSTEP_GUARDED_BY(mutex);
  };

  Pixels pixels(int64_t id) const {
    Cached& cached = cache_[id];
    {
      const Lock lock(cached.mutex);
      if (cached.pixels) return cached.pixels;
    }
    const int64_t numel = info().input_numel();
    std::shared_ptr<uint8_t[]> made(new uint8_t[numel]);
    resize_and_crop(pictures::read_image(files_[id]), info().input_shape[1], made.get());
    if (cache_left_.fetch_sub(numel) >= numel) {
      const Lock lock(cached.mutex);
      cached.pixels = made;
    } else {
      cache_left_.fetch_add(numel);
    }
    return made;
  }

  std::vector<fs::path> files_;
  std::vector<int64_t> classes_;
  mutable std::atomic<int64_t> cache_left_;
  std::unique_ptr<Cached[]> cache_;
  mutable std::once_flag once_;
  mutable Normalization normalization_;
};

bool is_image(const fs::path& path) {
  const std::string ending = ending_of(path);
  return ending == ".png" || ending == ".jpg" || ending == ".jpeg";
}

std::optional<fs::path> split_folder(const fs::path& folder, Subset subset) {
  const std::vector<const char*> names =
      subset == Subset::train ? std::vector{"train"} : std::vector{"test", "val", "valid", "validation"};
  for (const char* name : names) {
    std::error_code ignored;
    if (fs::is_directory(folder / name, ignored)) return folder / name;
  }
  return std::nullopt;
}

std::vector<std::string> names_of_folders(const fs::path& folder) {
  std::vector<std::string> names;
  for (const fs::path& path : sorted_folders(folder)) names.push_back(path.filename().string());
  return names;
}

DatasetPointer open_images(std::string_view name, Subset subset, const DatasetOptions& options) {
  const fs::path folder(name);
  require_folder(folder);
  require(options.image_size > 0 && options.cache_bytes >= 0, "open_dataset", "image_size is ", options.image_size,
          " and cache_bytes ", options.cache_bytes, ", expected at least 1 and at least 0");
  const auto train = split_folder(folder, Subset::train);
  const auto own = split_folder(folder, subset);
  require(own.has_value() || !train.has_value(), "open_dataset", folder.string(), " has a folder train and none for ",
          to_string(subset), ", expected one named test or val");
  const fs::path root = own.value_or(folder);
  // Numbers of classes are those of the training set, whatever the test set lacks.
  DatasetInfo info{.name = name_of(folder),
                   .input_shape = {3, options.image_size, options.image_size},
                   .class_names = names_of_folders(train.value_or(root))};
  info.classes = static_cast<int64_t>(info.class_names.size());
  require(info.classes > 0, "open_dataset", train.value_or(root).string(),
          " has no folders, expected one for each class with PNG or JPEG files in it");
  std::vector<fs::path> files;
  std::vector<int64_t> classes;
  for (const fs::path& path : sorted_folders(root)) {
    const auto found = std::ranges::find(info.class_names, path.filename().string());
    require(found != info.class_names.end(), "open_dataset", path.string(), " is no class of ",
            train.value_or(root).string(), ", expected folders of the same names");
    for (const fs::path& file : sorted_files(path))
      if (is_image(file)) {
        files.push_back(file);
        classes.push_back(found - info.class_names.begin());
      }
  }
  require(!files.empty(), "open_dataset", root.string(), " has no .png, .jpg or .jpeg file in its folders");
  info.size = static_cast<int64_t>(files.size());
  return std::make_shared<ImageFolder>(std::move(info), std::move(files), std::move(classes), options.cache_bytes);
}

bool holds_images(const fs::path& folder) {
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored)) return false;
  const fs::path root = split_folder(folder, Subset::train).value_or(folder);
  for (const fs::path& path : sorted_folders(root))
    if (std::ranges::any_of(sorted_files(path), is_image)) return true;
  return false;
}

}  // namespace

std::shared_ptr<const Dataset> open_image_files(const std::vector<std::string>& files, const DatasetOptions& options) {
  require(!files.empty() && options.image_size > 0, "open_image_files", files.size(), " files of size ",
          options.image_size, ", expected at least one of each");
  DatasetInfo info{.name = "images",
                   .size = static_cast<int64_t>(files.size()),
                   .input_shape = {3, options.image_size, options.image_size},
                   .classes = 1,
                   .class_names = {"image"}};
  return std::make_shared<ImageFolder>(std::move(info), std::vector<fs::path>(files.begin(), files.end()),
                                       std::vector<int64_t>(files.size(), 0), options.cache_bytes);
}

DatasetKind images_kind() {
  return {.name = "images",
          .usage = "images:FOLDER",
          .description = "FOLDER/[train|test/]CLASS/*.png, *.jpg, *.jpeg; three channels",
          .open = open_images,
          .recognises = holds_images,
          .contents = "a folder of images for each class"};
}

}  // namespace lockstep::data
