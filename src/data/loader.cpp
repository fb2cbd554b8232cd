// SPDX-License-Identifier: Apache-2.0
// Each replica has a window of shares: from the one it takes next to `prefetch` further on. Workers claim the share of
// the lowest number that nobody has claimed, over all windows. A consumer whose share nobody has claimed reads it
// himself. So a replica's progress needs no other replica's, and none needs a worker: there is no order of calls that
// can hang.
//
// Waking a worker for every share that is taken would cost each step as many switches as there are replicas. It is
// woken when a whole batch can be claimed.
#include "lockstep/data/loader.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include "data/share_reader.h"
#include "lockstep/base/detail/guarded.h"
#include "lockstep/base/error.h"

namespace lockstep::data {
namespace {

struct Slot {
  enum class State : uint8_t { empty, reading, ready } state = State::empty;
  Batch batch{};
  std::exception_ptr error{};
};

/// A replica's window: `taken` is the number of the share it takes next, `claimed` of the first that nobody has
/// claimed.
struct Lane {
  int64_t taken = 0;
  int64_t claimed = 0;
  std::vector<Slot> ring{};
  bool waits = false;
  Condition arrived{};
  PreparedTransforms::Scratch scratch{};  // for what the consumer reads himself

  Slot& slot(int64_t index) { return ring[index % static_cast<int64_t>(ring.size())]; }
};

LoaderOptions checked(LoaderOptions options) {
  require(options.workers >= 0 && options.workers <= 1024, "Loader", "workers is ", options.workers,
          ", expected 0 to 1024");
  require(options.prefetch >= 0 && options.prefetch <= 1024, "Loader", "prefetch is ", options.prefetch,
          ", expected 0 to 1024");
  const Interval block = options.block.value_or(Interval{0, options.replicas});
  require(0 <= block.begin && block.begin <= block.end && block.end <= options.replicas, "Loader", "the block is [",
          block.begin, ", ", block.end, "), expected a part of [0, ", options.replicas, ")");
  options.block = block;
  if (options.prefetch == 0) options.workers = 0;
  return options;
}

std::shared_ptr<const Dataset> checked(std::shared_ptr<const Dataset> dataset, const Order& order) {
  require(dataset != nullptr, "Loader", "the data set is null");
  require(order.examples() == dataset->size(), "Loader", "the order is for ", order.examples(), " examples, expected ",
          dataset->size(), ", the size of ", dataset->info().name);
  return dataset;
}

}  // namespace

const char* to_string(Tail tail) noexcept {
  return tail == Tail::exact ? "exact" : tail == Tail::pad ? "pad" : "drop_last";
}

Tail parse_tail(std::string_view text) {
  for (const Tail tail : {Tail::exact, Tail::drop_last, Tail::pad})
    if (text == to_string(tail)) return tail;
  fail("parse_tail", "got '", text, "', expected exact, drop_last or pad");
}

// Rounded as by the CPU's loop (data/cpu/kernels.cpp). A division by a number on the CPU would be a GPU's product.
at::Tensor Batch::inputs_on(at::Device device) const {
  at::Tensor there = inputs.to(device, /*non_blocking=*/true);
  if (there.scalar_type() != at::kByte) return there;
  const at::Tensor rows = scaling.to(device, /*non_blocking=*/true);
  return there.to(at::kFloat).div_(rows[0]).mul_(rows[1]).add_(rows[2]);
}

struct Loader::State {
  State(std::shared_ptr<const Dataset> dataset, const Order& order, const LoaderOptions& given)
      : options(checked(given)),
        reader(make_share_reader(checked(std::move(dataset), order), order, options)),
        lanes(options.block->size()) {
    for (Lane& lane : lanes) lane.ring.resize(std::max<int64_t>(options.prefetch, 1));
  }

  ~State() {
    {
      const Lock lock(mutex);
      stopping = true;
    }
    work.notify_all();
    for (std::thread& thread : threads) thread.join();
  }

  Lane& lane(int64_t replica, const char* operation) LOCKSTEP_REQUIRES(mutex) {
    require(options.block->begin <= replica && replica < options.block->end, operation, "replica ", replica,
            ", expected one of [", options.block->begin, ", ", options.block->end, "), which are served here");
    return lanes[replica - options.block->begin];
  }

  void run_worker();
  Lane* next_to_claim() LOCKSTEP_REQUIRES(mutex);
  int64_t unclaimed() const LOCKSTEP_REQUIRES(mutex);
  void read(Lane& lane, int64_t index, PreparedTransforms::Scratch& scratch) LOCKSTEP_REQUIRES(mutex);
  void wake_workers() LOCKSTEP_REQUIRES(mutex);

  const LoaderOptions options;
  const std::unique_ptr<ShareReader> reader;
  mutable Mutex mutex;
  Condition work, idle;
  std::vector<Lane> lanes LOCKSTEP_GUARDED_BY(mutex);
  std::vector<std::thread> threads LOCKSTEP_GUARDED_BY(mutex);
  int reading LOCKSTEP_GUARDED_BY(mutex) = 0;  // shares that are being read
  bool started LOCKSTEP_GUARDED_BY(mutex) = false;
  bool stopping LOCKSTEP_GUARDED_BY(mutex) = false;
  LoaderStats stats LOCKSTEP_GUARDED_BY(mutex);
};

// The lowest number first, then the lowest replica.
Lane* Loader::State::next_to_claim() {
  if (!started) return nullptr;
  Lane* found = nullptr;
  for (Lane& lane : lanes)
    if (lane.claimed < lane.taken + options.prefetch && (found == nullptr || lane.claimed < found->claimed))
      found = &lane;
  return found;
}

int64_t Loader::State::unclaimed() const {
  int64_t count = 0;
  for (const Lane& lane : lanes) count += lane.taken + options.prefetch - lane.claimed;
  return count;
}

/// Reads a share that was just claimed, without the lock.
void Loader::State::read(Lane& lane, int64_t index, PreparedTransforms::Scratch& scratch) {
  Slot& slot = lane.slot(index);
  const int64_t replica = options.block->begin + (&lane - lanes.data());
  slot.state = Slot::State::reading;
  ++reading;
  mutex.unlock();
  Batch batch;
  std::exception_ptr error;
  try {
    batch = reader->read(index, replica, scratch);
  } catch (...) {
    error = std::current_exception();
  }
  mutex.lock();
  slot.batch = std::move(batch);
  slot.error = error;
  slot.state = Slot::State::ready;
  if (lane.waits) lane.arrived.notify_one();
  if (--reading == 0) idle.notify_all();
}

void Loader::State::run_worker() {
  PreparedTransforms::Scratch scratch;
  Lock lock(mutex);
  while (!stopping) {
    if (Lane* lane = next_to_claim())
      read(*lane, lane->claimed++, scratch);
    else
      work.wait(lock);
  }
}

void Loader::State::wake_workers() {
  if (options.workers == 0) return;
  if (threads.empty()) {
    for (int i = 0; i < options.workers; ++i) threads.emplace_back([this] { run_worker(); });
    return;
  }
  if (unclaimed() >= static_cast<int64_t>(lanes.size())) work.notify_all();
}

Loader::Loader(std::shared_ptr<const Dataset> dataset, const Order& order, const LoaderOptions& options)
    : state_(std::make_unique<State>(std::move(dataset), order, options)) {}

Loader::~Loader() = default;

const Dataset& Loader::dataset() const {
  return state_->reader->dataset();
}

const Order& Loader::order() const {
  return state_->reader->order();
}

const LoaderOptions& Loader::options() const {
  return state_->options;
}

int64_t Loader::batches_per_epoch() const {
  return state_->reader->plan().batches_per_epoch();
}

int64_t Loader::batch_size(int64_t step) const {
  require(0 <= step && step < batches_per_epoch(), "Loader::batch_size", "step is ", step, ", expected one in [0, ",
          batches_per_epoch(), ")");
  return state_->reader->plan().size(step);
}

Batch Loader::next(int64_t replica) {
  State& state = *state_;
  Lock lock(state.mutex);
  Lane& lane = state.lane(replica, "Loader::next");
  state.started = true;
  Slot& slot = lane.slot(lane.taken);
  double waited = 0;
  if (slot.state != Slot::State::ready) {
    const auto begin = std::chrono::steady_clock::now();
    if (slot.state == Slot::State::empty) {
      lane.claimed = lane.taken + 1;
      state.wake_workers();  // they read what comes after it meanwhile
      state.read(lane, lane.taken, lane.scratch);
    } else {
      lane.waits = true;
      while (slot.state != Slot::State::ready) lane.arrived.wait(lock);
      lane.waits = false;
    }
    waited = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    ++state.stats.late;
    state.stats.waited_seconds += waited;
  }
  if (slot.error) std::rethrow_exception(slot.error);
  Batch batch = std::move(slot.batch);
  slot = Slot{};
  ++lane.taken;
  ++state.stats.batches;
  state.reader->give_back(batch);
  state.wake_workers();
  batch.waited_seconds = waited;
  return batch;
}

BatchCursor Loader::cursor(int64_t replica) const {
  const Lock lock(state_->mutex);
  return state_->reader->plan().cursor(state_->lane(replica, "Loader::cursor").taken);
}

void Loader::seek(BatchCursor cursor) {
  require(cursor.epoch >= 0 && 0 <= cursor.step && cursor.step < batches_per_epoch(), "Loader::seek", "epoch ",
          cursor.epoch, ", step ", cursor.step, ", expected an epoch of 0 or more and a step in [0, ",
          batches_per_epoch(), ")");
  State& state = *state_;
  Lock lock(state.mutex);
  state.started = false;  // nothing more is claimed
  while (state.reading != 0) state.idle.wait(lock);
  for (Lane& lane : state.lanes) {
    lane.taken = lane.claimed = state.reader->plan().index(cursor);
    for (Slot& slot : lane.ring) {
      if (slot.batch.inputs.defined()) state.reader->give_back(slot.batch);
      slot = Slot{};
    }
  }
}

LoaderStats Loader::stats() const {
  const Lock lock(state_->mutex);
  return state_->stats;
}

void Loader::reset_stats() {
  const Lock lock(state_->mutex);
  state_->stats = {};
}

Loader::Shares::Iterator::Iterator(Loader* loader, int64_t replica) : loader_(loader), replica_(replica) {
  take();
}

void Loader::Shares::Iterator::take() {
  batch_ = {};  // its buffers are free for what is read ahead now
  batch_ = loader_->next(replica_);
}

Loader::Shares::Iterator& Loader::Shares::Iterator::operator++() {
  at_end_ = batch_.last_of_epoch();
  if (at_end_)
    batch_ = {};
  else
    take();
  return *this;
}

}  // namespace lockstep::data
