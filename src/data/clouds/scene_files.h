// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/formats/file.h"
#include "lockstep/data/cloud.h"

// What the readers of published data sets of clouds share.
namespace lockstep::data {

/// One scene.
struct SceneFiles {
  std::vector<fs::path> files;
  int64_t points = 0;  ///< that they hold, about
  int64_t label = 0;   ///< of the whole, where the data set has such
};

/// Reads example `id` from its files.
using ReadScene = std::function<Cloud(int64_t id, std::span<const fs::path> files)>;

/// A data set of these scenes; info.size is theirs. `recipe`: what decides a scene's bits beside its number and its
/// files. Throws Error where there is no scene.
std::shared_ptr<const CloudDataset> make_scenes(DatasetInfo info, std::vector<SceneFiles> scenes, ReadScene read,
                                                std::string recipe = {});

/// The file, or Error where it isn't there, saying what it is expected to be.
fs::path require_file(fs::path file, const char* what);

/// About how many points a file holds.
int64_t points_in(const fs::path& file, int64_t bytes_a_point);

/// "PATH:3" as PATH and 3; PATH alone and `otherwise` where no number stands behind a colon.
std::pair<fs::path, int64_t> path_and_number(std::string_view spec, int64_t otherwise);

/// Scans of a laser as rows of float32 of which the first four are x, y, z and a reflectance from 0 to `brightest`,
/// which becomes the feature; and labels as one unsigned integer a point of which `class_of` makes a class, -100, or
/// nothing, which is an Error. All Errors name file and offset, but for a scan that has not the data set's `suffix`.
struct ScanFormat {
  const char* suffix;  // of a scan's name
  size_t floats;       // in a row
  float brightest;     // the feature is divided by it
  size_t label_bytes;
  std::optional<int64_t> (*class_of)(uint32_t label);
};
Cloud read_scan(std::span<const fs::path> points_and_labels, const ScanFormat& format);
Cloud read_scan_without_labels(const fs::path& file, const ScanFormat& format);

}  // namespace lockstep::data
