// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cfenv>
#include <memory>
#include <utility>
#include <vector>

#include "data/prepared_transforms.h"
#include "lockstep/base/detail/guarded.h"
#include "lockstep/data/loader.h"
#include "lockstep/numerics/placement.h"

namespace lockstep::data {

/// Whether a GPU copies from a loader's tensors without help. Throws Error where that was asked for and there is none.
bool pins(const LoaderOptions& options);

/// Tensors of shares, used again once nobody else holds them. Threads may use it at once.
class BufferPool {
 public:
  struct Buffers {
    at::Tensor ids, inputs, targets;
  };

  /// `reads_inputs`: else inputs are zeros, which nobody writes to.
  BufferPool(const DatasetInfo& info, at::ScalarType type, Layout layout, bool pinned, bool reads_inputs, size_t most);

  /// Buffers for so many rows: used ones where there are some.
  Buffers take(int64_t rows);
  /// What was given to a consumer: it is used again when he has let go of it, or forgotten where that takes long.
  void give(Buffers buffers);

 private:
  const DatasetInfo& info_;
  at::ScalarType type_;  // of inputs
  Layout layout_;
  bool pinned_, reads_inputs_;
  size_t most_;
  Mutex mutex_;
  std::vector<Buffers> given_ LOCKSTEP_GUARDED_BY(mutex_);
};

/// Where the steps of an epoch lie, and who has which part: arithmetic alone.
class BatchPlan {
 public:
  BatchPlan(int64_t positions, const LoaderOptions& options);

  int64_t batches_per_epoch() const { return batches_; }
  int64_t replicas() const { return replicas_; }
  BatchCursor cursor(int64_t index) const { return {index / batches_, index % batches_}; }
  int64_t index(BatchCursor cursor) const { return cursor.epoch * batches_ + cursor.step; }
  /// Examples of the batch.
  int64_t size(int64_t step) const;
  /// The positions of a replica's share, and the rows of its tensors: more than these with Tail::pad.
  Interval positions(int64_t step, int64_t replica) const;
  int64_t rows(int64_t step, int64_t replica) const;

 private:
  int64_t positions_, batch_, replicas_, batches_;
  Tail tail_;
};

/// Reads shares; knows nothing of threads, and any number of them may call it.
class ShareReader {
 public:
  virtual ~ShareReader() = default;
  ShareReader(const ShareReader&) = delete;
  ShareReader& operator=(const ShareReader&) = delete;

  virtual const Dataset& dataset() const = 0;
  const Order& order() const { return order_; }
  const BatchPlan& plan() const { return plan_; }

  virtual Batch read(int64_t index, int64_t replica, PreparedTransforms::Scratch& scratch) = 0;
  /// What each replica's share of a batch costs, as far as can be said without reading it: examples, or points.
  virtual std::vector<int64_t> costs(int64_t index) const;
  /// Buffers of a batch, to be used again once nobody holds them.
  virtual void give_back(const Batch& /*batch*/) {}

 protected:
  ShareReader(Order order, const LoaderOptions& options) : order_(std::move(order)), plan_(order_.size(), options) {}
  /// A batch that says where it lies and has no tensors yet.
  Batch begin(int64_t index) const;

 private:
  Order order_;
  BatchPlan plan_;
};

/// For examples of one size, or for clouds.
std::unique_ptr<ShareReader> make_share_reader(std::shared_ptr<const Dataset> dataset, const Order& order,
                                               const LoaderOptions& options);

/// Standard rounding and denormals, whatever the thread that reads has set: a share has the same bits from any.
class StandardFloats {
 public:
  StandardFloats();
  ~StandardFloats();
  StandardFloats(const StandardFloats&) = delete;
  StandardFloats& operator=(const StandardFloats&) = delete;

 private:
  std::fenv_t before_;
};

}  // namespace lockstep::data
