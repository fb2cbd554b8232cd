// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <future>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/archive/tensor_file.h"
#include "lockstep/data/dataset.h"
#include "lockstep/numerics/fingerprint.h"

namespace lockstep::run {

using Tensors = std::map<std::string, at::Tensor>;

/// Where training stands: what has been done. The same in every placement.
struct TrainingCursor {
  int64_t epoch = 0;  ///< epochs done
  int64_t batch = 0;  ///< batches done of the epoch that runs
  int64_t step = 0;   ///< updates done in all, those that loss scaling left out too

  bool operator==(const TrainingCursor&) const = default;
};

/// All that training on depends on. A value; its tensors are on the CPU and nobody else's.
struct Checkpoint {
  std::string model;  ///< the network's name in the registry, or what the program calls it
  Tensors weights;    ///< replica 0's parameters and buffers, by torch's names
  Tensors buffers;    ///< those that replicas have different values in: [R, ...], row r is replica r's
  Tensors optimizer;  ///< Optimizer::state_dict()
  TrainingCursor cursor;
  uint64_t seed = 0;
  int64_t replicas = 0;
  std::string config;  ///< the run's resolved configuration, TOML
  /// What was trained on, so that the network can be used where the data is not; none in files of older versions.
  std::optional<data::DatasetInfo> data;
  Fingerprint::Items fingerprint;
  archive::Value::Dict extra;  ///< what else a program keeps; the trainer's own sums and ledger too
};

/// Writes it aside, syncs it and renames it; a file that had the name becomes "previous.pt" beside it, so that a whole
/// checkpoint is there at any moment. Python reads it with torch.load(..., weights_only=True). Throws
/// Error where it can't be written.
void save_checkpoint(const std::filesystem::path& file, const Checkpoint& checkpoint);

/// What save_checkpoint writes.
std::string bytes_of(const Checkpoint& checkpoint);

struct FoundCheckpoint {
  std::filesystem::path file;
  Checkpoint checkpoint;
  std::string checksums;  ///< tell it from another file of the name; none in files of older versions
};

/// Throws DamagedFile or Error (tensor_file.h), or Error where it is no checkpoint. Its tensors lie in the file's own
/// pages (tensor_archive.h).
Checkpoint load_checkpoint(const std::filesystem::path& file);
FoundCheckpoint read_checkpoint(const std::filesystem::path& file);
Checkpoint load_checkpoint(std::span<const std::byte> bytes, const std::string& name);
bool is_checkpoint(const archive::Value& value);

/// The newest whole checkpoint of a run's folder: last.pt, or previous.pt where that is damaged (with a warning in the
/// log). Empty where there is none at all; throws DamagedFile where there are only damaged ones.
std::optional<FoundCheckpoint> find_checkpoint(const std::filesystem::path& folder);

/// Saves checkpoints on a thread of its own, one at a time, so that training goes on meanwhile. Used by one thread.
class CheckpointWriter {
 public:
  explicit CheckpointWriter(std::filesystem::path file) : file_(std::move(file)) {}

  /// Waits for the former save, then starts this one. Throws what the former one threw.
  void save(Checkpoint checkpoint);
  /// Whether a save has failed. Never blocks.
  bool failed() const { return failed_; }
  /// Waits for the last save and throws what it threw. Destroying the writer waits too, and says nothing.
  void finish();

 private:
  std::filesystem::path file_;
  std::atomic<bool> failed_ = false;
  std::future<void> running_;
};

}  // namespace lockstep::run
