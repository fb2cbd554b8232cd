// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/subset.h"

namespace lockstep::data {

/// The target of what has no class: PyTorch's losses leave it out.
inline constexpr int64_t kIgnore = -100;

/// What is known of a data set before any example is read.
struct DatasetInfo {
  std::string name{};  ///< "fashion-mnist"
  int64_t size = 0;
  /// [C, H, W] of images; [C] of clouds, whose points have C features; any shape of other inputs.
  std::vector<int64_t> input_shape{};
  /// Empty: one class an example, or one a point of a cloud. [H, W] where each pixel has one.
  std::vector<int64_t> target_shape{};
  /// Targets are in [0, classes).
  int64_t classes = 0;
  /// `classes` of them; numbers where the data has no names.
  std::vector<std::string> class_names{};
  /// Examples are clouds of points (cloud.h), seen on a grid with voxels of this side in metres; 0: they are not.
  double voxel = 0;
  /// Of clouds: a class is of a whole cloud, not of each of its points.
  bool whole_clouds = false;
  /// Of clouds that are made of meshes: so many points are strewn over each.
  int64_t mesh_points = 0;

  /// Examples are clouds whose points have a class each.
  bool segments() const { return voxel > 0 && !whole_clouds; }
  int64_t input_numel() const;
  int64_t target_numel() const;
  bool operator==(const DatasetInfo&) const = default;
};

/// Mean and standard deviation of each channel of inputs, in the unit that read() gives; a single channel where inputs
/// are not [C, H, W].
struct Normalization {
  std::vector<float> mean{};
  std::vector<float> deviation{};

  bool operator==(const Normalization&) const = default;
};

/// What read() does to the values of channel c: value * scale[c] + shift[c], rounded twice. Empty: as they are.
struct Affine {
  std::span<const float> scale{};
  std::span<const float> shift{};
};

/// How the values of one example lie in memory.
enum class Layout : uint8_t {
  contiguous,    ///< [C, H, W]
  channels_last  ///< [H, W, C]; inputs that are not [C, H, W] are contiguous all the same
};

/// Examples by number, in [0, size()). Reading changes nothing: any number of threads may read at once, and an example
/// has the same bits whoever reads it.
class Dataset {
 public:
  virtual ~Dataset() = default;
  Dataset(const Dataset&) = delete;
  Dataset& operator=(const Dataset&) = delete;

  const DatasetInfo& info() const { return info_; }
  int64_t size() const { return info_.size; }

  /// Reads examples `ids` (any order, repeats are legal) one after another: inputs as float32, `ids.size()` times
  /// input_numel() of them, in this layout (images of bytes become multiples of 1/255 in [0, 1]), and targets,
  /// `ids.size()` times target_numel() of them. The memory is the caller's. Throws Error for an id out of range, for a
  /// file that can't be read or is corrupt.
  void read(std::span<const int64_t> ids, Layout layout, Affine affine, float* inputs, int64_t* targets) const;
  /// Contiguous, values as they are.
  void read(std::span<const int64_t> ids, float* inputs, int64_t* targets) const;
  /// Inputs as the bytes that they are. Throws Error where they are none.
  void read(std::span<const int64_t> ids, Layout layout, uint8_t* inputs, int64_t* targets) const;
  /// Whether inputs are bytes, of which read() makes multiples of 1/255.
  virtual bool holds_bytes() const { return false; }

  /// The targets of examples `ids` alone. Images are not decoded for it.
  void read_targets(std::span<const int64_t> ids, int64_t* targets) const;
  /// Of all examples, [size * target_numel].
  std::vector<int64_t> targets() const;

  /// Of this data set's own inputs: over all of them where they lie in memory, over an evenly spaced 1,024 where they
  /// are files. The first call computes it; the same bits at every call. Evaluate with the training set's.
  virtual Normalization normalization() const = 0;

 protected:
  /// Throws Error where the description makes no sense.
  explicit Dataset(DatasetInfo info);

  /// What read() and read_targets() do once ids and affine have been checked; affine has one pair a channel or none.
  virtual void read_inputs(std::span<const int64_t> ids, Layout layout, Affine affine, float* inputs) const = 0;
  /// Asked for where holds_bytes() says so.
  virtual void read_bytes(std::span<const int64_t> ids, Layout layout, uint8_t* inputs) const;
  virtual void fetch_targets(std::span<const int64_t> ids, int64_t* targets) const = 0;

  /// Throws Error where an id is out of range.
  void check(const char* operation, std::span<const int64_t> ids) const;

 private:
  DatasetInfo info_;
};

struct DatasetOptions {
  /// Folders of images: each is scaled so that its shorter side has this length and its middle square is taken.
  int64_t image_size = 224;
  /// Folders of images: decoded images are kept while they fit in here.
  int64_t cache_bytes = int64_t{4} << 30;
  /// Synthetic data: another seed, other data.
  uint64_t seed = 0;
  /// Clouds: the side of a voxel in metres.
  double voxel = 0.05;
};

/// The data set of this library that a text names, such as "mnist:FOLDER" or the path of a folder: builtin().open(...).
/// registry.h says what is thrown and how to add other kinds; `lockstep train --help` lists those that there are.
std::shared_ptr<const Dataset> open_dataset(std::string_view spec, Subset subset, const DatasetOptions& options = {});

/// Whether such a text names clouds of points; nothing is opened.
bool names_clouds(std::string_view spec);

/// PNG and JPEG files as inputs [3, image_size, image_size], scaled and cut as folders of images are, in the order of
/// the list; all of class 0. Throws Error where the list is empty; a file that can't be read is an Error when it is
/// read.
std::shared_ptr<const Dataset> open_image_files(const std::vector<std::string>& files,
                                                const DatasetOptions& options = {});

/// Examples in memory, for a program that has them already: inputs [N, ...], uint8 (read as multiples of 1/255) or
/// floating (kept as float32), and targets [N, ...] of whole numbers. `classes` 0: the highest target and one. The
/// tensors are shared where they are contiguous CPU tensors of these dtypes, and may then not be changed. Throws Error
/// when sizes don't match, or a target is neither a class nor -100 (PyTorch's "ignore").
std::shared_ptr<const Dataset> make_dataset(std::string name, const at::Tensor& inputs, const at::Tensor& targets,
                                            int64_t classes = 0, std::vector<std::string> class_names = {});

/// The first `count` examples of another data set.
std::shared_ptr<const Dataset> first_of(std::shared_ptr<const Dataset> dataset, int64_t count);

}  // namespace lockstep::data
