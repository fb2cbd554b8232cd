// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/data/dataset.h"
#include "lockstep/data/order.h"
#include "lockstep/data/transforms.h"
#include "lockstep/numerics/placement.h"
#include "lockstep/points/sorted_coordinates.h"

namespace lockstep::data {

/// What becomes of the last batch of an epoch where the batch size does not divide its positions.
enum class Tail : uint8_t {
  exact,      ///< it is smaller: each position is used exactly once
  drop_last,  ///< it is left out
  pad         ///< its shares are filled up to their usual size with rows that don't count
};

/// "exact", "drop_last" or "pad"; parse_tail throws Error on any other text.
const char* to_string(Tail tail) noexcept;
Tail parse_tail(std::string_view text);

/// A place in the data, the same for all replicas and in every placement: all the state that the data has.
struct BatchCursor {
  int64_t epoch = 0;
  int64_t step = 0;  ///< batches of this epoch that come before

  bool operator==(const BatchCursor&) const = default;
  auto operator<=>(const BatchCursor&) const = default;
};

/// One replica's share of one global batch. With n rows:
struct Batch {
  at::Tensor ids;        ///< [n] int64; -1 in rows that don't count
  at::Tensor inputs;     ///< [n, C, H, W] float32; of clouds [m, C], the features of all their m voxels
  at::Tensor scaling{};  ///< where inputs are bytes (LoaderOptions::bytes): what inputs_on() makes floats with
  /// [n, ...] int64; -100, which PyTorch's losses ignore, in rows that don't count. Of clouds [m], or where the class
  /// is of the whole one for each cloud that has voxels.
  at::Tensor targets;
  at::Tensor coordinates{};  ///< of clouds: [m, 4] int32, the number of the cloud in this share, then its voxel's place
  /// The same coordinates as what they are: sorted, so that a sparse tensor is made of them without looking. They share
  /// their memory, which must not be written to where these are used.
  points::SortedCoordinates sorted_coordinates{};
  /// Of clouds, where LoaderOptions::points asks: [p] int64 each, the row of the voxel that a point is in, and its
  /// class.
  at::Tensor voxel_of_point{}, point_targets{};
  int64_t count = 0;          ///< rows that count, the first ones; n except with Tail::pad
  double weight = 0;          ///< of this share in means over all: how many examples, voxels or clouds have a class
  int64_t global_count = 0;   ///< of all replicas' shares together
  BatchCursor at;             ///< where it lies: epoch, and step in the epoch
  BatchCursor next;           ///< the place after it, to resume from
  double waited_seconds = 0;  ///< how long its replica has waited for it

  /// The inputs as floats on a device, copied without waiting where they are not there.
  at::Tensor inputs_on(at::Device device) const;

  bool last_of_epoch() const { return next.epoch != at.epoch; }
};

struct LoaderOptions {
  /// The size of the global batch: part of the recipe.
  int64_t batch = 256;
  /// R, over which each batch is cut, and those of them that are served here: all when empty.
  int64_t replicas = 1;
  std::optional<Interval> block{};
  Tail tail = Tail::exact;
  Transforms transforms{};
  /// What random transforms draw from.
  uint64_t seed = 0;
  /// Of [n, C, H, W] inputs.
  Layout layout = Layout::contiguous;
  /// Off: inputs of images have their sizes and are zeros; nothing is decoded. For a process that holds a later part of
  /// a network (Team::holds_first_part), whose stages never look at them. Clouds are read all the same.
  bool inputs = true;
  /// For a GPU: inputs that the data set holds as bytes stay bytes, a fourth of what crosses to it, and are normalised
  /// there by Batch::inputs_on(), to the same values. Not where a function of the user's wants floats, nor where pixels
  /// become 0 after they have been normalised; inputs are floats then.
  bool bytes = false;
  /// Threads that read ahead; 0: whoever asks reads. One reads 28 x 28 images for some hundred cores.
  int workers = 1;
  /// How many batches are read ahead.
  int64_t prefetch = 2;
  /// Buffers that a GPU copies from without help. Unset: where there is a GPU. A batch whose tensors were copied with
  /// non_blocking must be held until the copy is over: its buffers are used again when nobody holds them.
  std::optional<bool> pinned{};
  /// Of clouds: a folder that keeps scenes as they are before random transforms, so that each is read from its source
  /// once: voxels where there are no transforms, else points. Any number of processes may share it; what they train is
  /// the same with and without. None where empty.
  std::string cache{};
  /// Of clouds whose points have a class each: batches say this of the points too, not only of their voxels.
  bool points = false;
};

/// How long consumers have waited, since the last reset.
struct LoaderStats {
  int64_t batches = 0;        ///< shares that were taken
  int64_t late = 0;           ///< those of them that were not ready
  double waited_seconds = 0;  ///< summed over the replicas served here
};

/// Cuts the order into global batches and each batch into R shares (Placement::even, as Replica::share_of; clouds by
/// balanced_shares of their costs), and reads the shares of the replicas that run here, ahead of time:
///
///     Loader loader(dataset, Order::shuffled(dataset->size(), seed), {.batch = 256, .replicas = 8});
///     for (const Batch& batch : loader.share(me.number()))  // the rest of this epoch
///       ...;
///
/// Epochs follow each other; reading ahead goes over their ends. Each replica takes its shares in order, at its own
/// pace and from its own thread: none ever waits for another. What a batch holds follows from (order, seed, epoch,
/// step, R, replica) and from nothing else.
///
/// Buffers (64-byte aligned) are used again once nobody holds a tensor of the batch. Who copies them to a GPU without
/// waiting keeps the batch until the copy is done.
class Loader {
 public:
  /// Throws Error when the order is for another number of examples, there are no batches in an epoch (drop_last, or no
  /// positions at all), or options make no sense.
  Loader(std::shared_ptr<const Dataset> dataset, const Order& order, const LoaderOptions& options = {});
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;
  ~Loader();

  const Dataset& dataset() const;
  const Order& order() const;
  const LoaderOptions& options() const;
  int64_t batches_per_epoch() const;
  /// The rows that count of one global batch of an epoch.
  int64_t batch_size(int64_t step) const;

  /// This replica's next share; waits where it is not ready. Threads of different replicas may call at once. Throws
  /// Error for a replica that is not served here, and what reading threw (the same again at the next call).
  Batch next(int64_t replica = 0);

  /// What this replica takes next.
  BatchCursor cursor(int64_t replica = 0) const;
  /// All replicas go on from here, in whatever placement it was left. Not while a replica is in next(). Throws Error
  /// for a place that is not in an epoch.
  void seek(BatchCursor cursor);

  LoaderStats stats() const;
  void reset_stats();

  /// A replica's shares from its cursor to the end of that epoch; none of the next epoch is taken.
  class Shares;
  Shares share(int64_t replica = 0);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// A range to loop over once. A batch lives until the loop's next round.
class Loader::Shares {
 public:
  class Iterator {
   public:
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;
    Iterator(Loader* loader, int64_t replica);
    const Batch& operator*() const { return batch_; }
    const Batch* operator->() const { return &batch_; }
    Iterator& operator++();
    void operator++(int) { ++*this; }
    bool operator==(std::default_sentinel_t) const { return at_end_; }

   private:
    void take();
    Loader* loader_;
    int64_t replica_;
    Batch batch_;
    bool at_end_ = false;
  };

  Shares(Loader* loader, int64_t replica) : loader_(loader), replica_(replica) {}
  Iterator begin() const { return {loader_, replica_}; }
  std::default_sentinel_t end() const { return {}; }

 private:
  Loader* loader_;
  int64_t replica_;
};

inline Loader::Shares Loader::share(int64_t replica) {
  return {this, replica};
}

}  // namespace lockstep::data
