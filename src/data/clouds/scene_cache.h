// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "data/formats/file.h"
#include "lockstep/data/cloud.h"

namespace lockstep::data {

/// Scenes on disk, by a text that decides their bits. Threads and processes may read and write one folder at once: an
/// entry is written aside and renamed, and whoever writes it writes the same. An entry that is damaged, by a crash or
/// otherwise, counts as none and is written anew.
class SceneCache {
 public:
  /// What an entry is made of, each part as bytes.
  using Parts = std::vector<std::string>;

  /// Makes the folder where it isn't there. Throws Error where that can't be done.
  explicit SceneCache(fs::path folder);

  std::optional<Parts> find(const std::string& key) const;
  /// Where it can't be written, on a disk that is full, there is a warning, once, and training goes on.
  void keep(const std::string& key, const Parts& parts) const;

  /// The file of this key, whether it is there or not.
  fs::path file_of(const std::string& key) const;

 private:
  fs::path folder_;
  mutable std::atomic<bool> warned_ = false;
};

/// What `read` gives, from the cache where it has it. `source` is CloudDataset::source: nothing is kept where it is
/// empty.
Cloud cached_cloud(const SceneCache& cache, const std::string& source, int64_t channels,
                   const std::function<Cloud()>& read);
/// The same of voxels of this side; the rows of points are not kept.
Voxels cached_voxels(const SceneCache& cache, const std::string& source, double side, int64_t channels,
                     const std::function<Voxels()>& read);

}  // namespace lockstep::data
