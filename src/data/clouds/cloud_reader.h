// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "data/clouds/scene_cache.h"
#include "data/share_reader.h"
#include "lockstep/data/cloud.h"

namespace lockstep::data {

/// A cloud as a batch takes it.
struct SeenCloud {
  Voxels voxels;
  std::vector<int64_t> labels;  // of its points, where LoaderOptions::points asks
};

/// Shares of clouds: which of a batch they are is balanced by cost; each is transformed, put on its grid, and joined
/// with the others.
class CloudReader : public ShareReader {
 public:
  /// Throws Error for transforms of images, and for Tail::pad.
  CloudReader(std::shared_ptr<const CloudDataset> dataset, const Order& order, const LoaderOptions& options);
  const Dataset& dataset() const override { return *dataset_; }
  Batch read(int64_t index, int64_t replica, PreparedTransforms::Scratch& scratch) override;
  std::vector<int64_t> costs(int64_t index) const override;

 private:
  /// The scenes of a batch, what each costs, and which of them are whose.
  struct Dealt {
    std::vector<int64_t> ids, costs;
    std::vector<std::vector<int64_t>> shares;
  };
  Dealt deal(const Batch& batch) const;
  /// What an example costs in an epoch, with the one that is mixed in.
  int64_t cost(int64_t id, RandomKey key) const;
  RandomKey key_of(int64_t id, int64_t epoch) const { return key_.fold(epoch).fold(id); }
  /// As measured, and as voxels after all transforms; from the cache where it has them.
  Cloud cloud(int64_t id) const;
  SeenCloud see(int64_t id, int64_t epoch) const;

  std::shared_ptr<const CloudDataset> dataset_;
  int64_t batch_, replicas_;
  Transforms transforms_;
  RandomKey key_;
  std::optional<SceneCache> cache_;
  bool points_, pinned_;
};

}  // namespace lockstep::data
