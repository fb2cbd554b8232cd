// SPDX-License-Identifier: Apache-2.0
#include "data/share_reader.h"

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <span>
#include <utility>

#include "data/clouds/clouds.h"
#include "lockstep/base/error.h"
#include "lockstep/numerics/device.h"

namespace lockstep::data {
namespace {

/// Part `number` of `count` things cut in `parts` whose sizes differ by at most one: Placement::even without the table.
Interval part_of(int64_t count, int64_t parts, int64_t number) {
  const int64_t base = count / parts, larger = count % parts;
  const int64_t begin = number * base + std::min(number, larger);
  return {begin, begin + base + (number < larger ? 1 : 0)};
}

// Who holds a view of a tensor holds its storage, and a tensor that requires a gradient is no longer ours to write to.
// The counts alone order nothing: it is giving up a reference of our own that makes what the last holder did visible.
bool is_free(const at::Tensor& tensor) {
  at::Tensor own = tensor;
  c10::Storage storage = tensor.storage();
  const bool free = own.use_count() == 2 && storage.use_count() == 2 && !tensor.requires_grad();
  own.reset();
  storage = {};
  return free;
}

/// How many examples have a class; where an example has many targets, parts of them count.
double labelled(const Batch& batch) {
  if (batch.count == 0) return 0;
  const std::span<const int64_t> targets(batch.targets.const_data_ptr<int64_t>(),
                                         static_cast<size_t>(batch.targets.numel()));
  const auto known = std::ranges::count_if(targets, [](int64_t target) { return target >= 0; });
  const int64_t target_numel = batch.targets.numel() / batch.targets.size(0);
  return static_cast<double>(known) / static_cast<double>(target_numel);
}

// A consumer may have changed what a tensor is without holding it: squeeze_(), resize_(), set_data().
bool is_as_new(const at::Tensor& tensor, at::IntArrayRef sizes, at::ScalarType type,
               at::MemoryFormat format = at::MemoryFormat::Contiguous) {
  return tensor.sizes() == sizes && tensor.scalar_type() == type && tensor.is_cpu() && tensor.is_contiguous(format);
}

/// Rows past those that count repeat the share's own, so that what is computed of them is nothing unusual.
template <class Value>
void pad(const Batch& batch, int64_t rows) {
  if (rows == batch.count) return;
  auto* ids = batch.ids.mutable_data_ptr<int64_t>();
  auto* inputs = batch.inputs.mutable_data_ptr<Value>();
  auto* targets = batch.targets.mutable_data_ptr<int64_t>();
  const int64_t numel = batch.inputs.numel() / rows, target_numel = batch.targets.numel() / rows;
  for (int64_t row = batch.count; row < rows; ++row) {
    ids[row] = -1;
    std::fill_n(targets + row * target_numel, target_numel, kIgnore);
    if (batch.count == 0)
      std::fill_n(inputs + row * numel, numel, Value(0));
    else
      std::copy_n(inputs + row % batch.count * numel, numel, inputs + row * numel);
  }
}

}  // namespace

bool pins(const LoaderOptions& options) {
  const bool possible = at::hasCUDA() && !cuda_devices().empty();
  require(possible || !options.pinned.value_or(false), "Loader",
          "pinned buffers were asked for where there is no GPU that this program can use");
  return options.pinned.value_or(possible);
}

BufferPool::BufferPool(const DatasetInfo& info, at::ScalarType type, Layout layout, bool pinned, bool reads_inputs,
                       size_t most)
    : info_(info), type_(type), layout_(layout), pinned_(pinned), reads_inputs_(reads_inputs), most_(most) {}

BufferPool::Buffers BufferPool::take(int64_t rows) {
  std::vector<int64_t> inputs{rows}, targets{rows};
  inputs.insert(inputs.end(), info_.input_shape.begin(), info_.input_shape.end());
  targets.insert(targets.end(), info_.target_shape.begin(), info_.target_shape.end());
  const auto format = layout_ == Layout::channels_last && inputs.size() == 4 ? at::MemoryFormat::ChannelsLast
                                                                             : at::MemoryFormat::Contiguous;
  {
    const Lock lock(mutex_);
    const auto found = std::ranges::find_if(given_, [&](const Buffers& buffers) {
      return is_as_new(buffers.ids, {rows}, at::kLong) && is_as_new(buffers.inputs, inputs, type_, format) &&
             is_as_new(buffers.targets, targets, at::kLong) && is_free(buffers.inputs) && is_free(buffers.targets) &&
             is_free(buffers.ids);
    });
    if (found != given_.end()) {
      Buffers buffers = std::move(*found);
      given_.erase(found);
      return buffers;
    }
  }
  // A consumer in inference mode may be the one who reads, and his buffers serve training later.
  const c10::InferenceMode off(false);
  const auto longs = at::TensorOptions(at::kLong).pinned_memory(pinned_);
  Buffers buffers{at::empty({rows}, at::TensorOptions(at::kLong)),
                  at::empty(inputs, at::TensorOptions(type_).pinned_memory(pinned_), format),
                  at::empty(targets, longs)};
  if (!reads_inputs_) buffers.inputs.zero_();
  return buffers;
}

void BufferPool::give(Buffers buffers) {
  // A copy from pinned memory to a GPU may be under way when nobody holds the buffer any more. libtorch, which has the
  // memory back then, waits for such copies before it gives it out again.
  if (pinned_) return;
  const Lock lock(mutex_);
  if (given_.size() >= most_) given_.erase(given_.begin());
  given_.push_back(std::move(buffers));
}

BatchPlan::BatchPlan(int64_t positions, const LoaderOptions& options)
    : positions_(positions), batch_(options.batch), replicas_(options.replicas), batches_(0), tail_(options.tail) {
  require(options.batch > 0, "Loader", "batch is ", options.batch, ", expected at least 1");
  require(options.replicas > 0, "Loader", "replicas is ", options.replicas, ", expected at least 1");
  batches_ = tail_ == Tail::drop_last ? positions / batch_ : (positions + batch_ - 1) / batch_;
  require(batches_ > 0, "Loader", "an epoch of ", positions, " positions has no ",
          tail_ == Tail::drop_last ? "full " : "", "batch of ", batch_, ", expected at least one");
}

int64_t BatchPlan::size(int64_t step) const {
  return std::min(batch_, positions_ - step * batch_);
}

Interval BatchPlan::positions(int64_t step, int64_t replica) const {
  const Interval share = part_of(size(step), replicas_, replica);
  return {step * batch_ + share.begin, step * batch_ + share.end};
}

int64_t BatchPlan::rows(int64_t step, int64_t replica) const {
  return part_of(tail_ == Tail::pad ? batch_ : size(step), replicas_, replica).size();
}

std::vector<int64_t> ShareReader::costs(int64_t index) const {
  std::vector<int64_t> costs;
  for (int64_t replica = 0; replica < plan_.replicas(); ++replica)
    costs.push_back(plan_.positions(plan_.cursor(index).step, replica).size());
  return costs;
}

Batch ShareReader::begin(int64_t index) const {
  Batch batch;
  batch.at = plan_.cursor(index);
  batch.next = plan_.cursor(index + 1);
  batch.global_count = plan_.size(batch.at.step);
  return batch;
}

StandardFloats::StandardFloats() {
  std::fegetenv(&before_);
  std::fesetenv(FE_DFL_ENV);
}

StandardFloats::~StandardFloats() {
  std::fesetenv(&before_);
}

namespace {

/// Batch::scaling: what bytes are divided by, multiplied with, and what is added, [3, C, 1, 1] or [3, 1].
at::Tensor scaling_of(const PreparedTransforms& transforms, const Dataset& dataset, bool pinned) {
  const Affine affine = transforms.normalization();
  const bool images = dataset.info().input_shape.size() == 3;
  const int64_t channels = images ? dataset.info().input_shape[0] : 1;
  at::Tensor scaling = at::empty({3, channels}, at::TensorOptions(at::kFloat).pinned_memory(pinned));
  float* const rows = scaling.mutable_data_ptr<float>();
  for (int64_t c = 0; c < channels; ++c) {
    rows[c] = 255;
    rows[channels + c] = affine.scale.empty() ? 1 : affine.scale[c];
    rows[2 * channels + c] = affine.shift.empty() ? 0 : affine.shift[c];
  }
  return images ? scaling.view({3, channels, 1, 1}) : scaling;
}

/// Of examples of one size, into buffers that are used again.
class RowReader : public ShareReader {
 public:
  RowReader(std::shared_ptr<const Dataset> dataset, const Order& order, const LoaderOptions& options)
      : ShareReader(order, options),
        dataset_(std::move(dataset)),
        layout_(options.layout),
        transforms_(options.transforms, *dataset_, options.seed),
        reads_inputs_(options.inputs),
        scaling_(options.bytes && transforms_.keeps_bytes() ? scaling_of(transforms_, *dataset_, pins(options))
                                                            : at::Tensor()),
        pool_(dataset_->info(), scaling_.defined() ? at::kByte : at::kFloat, layout_, pins(options), reads_inputs_,
              static_cast<size_t>(2 * options.block.value_or(Interval{0, options.replicas}).size())) {}

  const Dataset& dataset() const override { return *dataset_; }
  void give_back(const Batch& batch) override { pool_.give({batch.ids, batch.inputs, batch.targets}); }

  Batch read(int64_t index, int64_t replica, PreparedTransforms::Scratch& scratch) override {
    const StandardFloats standard;
    Batch batch = begin(index);
    const Interval positions = plan().positions(batch.at.step, replica);
    const int64_t rows = plan().rows(batch.at.step, replica);
    batch.count = positions.size();
    BufferPool::Buffers buffers = pool_.take(rows);
    batch.ids = std::move(buffers.ids);
    batch.inputs = std::move(buffers.inputs);
    batch.targets = std::move(buffers.targets);
    batch.scaling = scaling_;
    const std::span<int64_t> ids(batch.ids.mutable_data_ptr<int64_t>(), static_cast<size_t>(batch.count));
    order().fill(batch.at.epoch, positions.begin, ids);
    scaling_.defined() ? fill<uint8_t>(batch, ids, rows, scratch) : fill<float>(batch, ids, rows, scratch);
    batch.weight = labelled(batch);
    return batch;
  }

 private:
  template <class Value>
  void fill(const Batch& batch, std::span<const int64_t> ids, int64_t rows, PreparedTransforms::Scratch& scratch) {
    auto* const targets = batch.targets.mutable_data_ptr<int64_t>();
    if (reads_inputs_)
      transforms_.read(*dataset_, batch.at.epoch, ids, layout_, batch.inputs.mutable_data_ptr<Value>(), targets,
                       scratch);
    else
      dataset_->read_targets(ids, targets);
    pad<Value>(batch, rows);
  }

  std::shared_ptr<const Dataset> dataset_;
  Layout layout_;
  PreparedTransforms transforms_;
  bool reads_inputs_;
  at::Tensor scaling_;  // undefined: inputs are floats
  BufferPool pool_;
};

}  // namespace

std::unique_ptr<ShareReader> make_share_reader(std::shared_ptr<const Dataset> dataset, const Order& order,
                                               const LoaderOptions& options) {
  if (auto clouds = make_cloud_reader(dataset, order, options)) return clouds;
  require(options.cache.empty(), "Loader", "the cache is for clouds, and ", dataset->info().name,
          " has other examples");
  return std::make_unique<RowReader>(std::move(dataset), order, options);
}

}  // namespace lockstep::data
