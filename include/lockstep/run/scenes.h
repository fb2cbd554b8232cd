// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/pictures/image.h"

/// `scenes.json`: clouds of the test set with what a network makes of them, small enough for a page.
namespace lockstep::run {

/// Some voxels of one scene.
struct Scene {
  static constexpr uint8_t kUnknown = 255;  ///< the label of a voxel whose class nobody knows

  int64_t id = 0;   ///< of the scene in its data set
  double mark = 1;  ///< how wide a voxel is drawn, in voxels: more than one where others have been left out
  std::vector<std::array<uint16_t, 3>> voxels = {};  ///< [N] from the scene's corner; z upwards
  std::vector<uint8_t> labels = {};                  ///< [N] classes
  std::vector<uint8_t> predictions = {};             ///< [N]
  std::vector<pictures::Rgb> colours = {};           ///< [N] as measured; or none

  bool operator==(const Scene&) const = default;
};

struct Scenes {
  std::vector<std::string> classes = {};  ///< at most 255
  std::vector<Scene> scenes = {};

  bool operator==(const Scenes&) const = default;
};

/// How the page and the file hold a list of voxels, labels or colours: the bytes of its numbers, low ones first, as
/// base64.
template <class Number>
std::string packed(const std::vector<Number>& numbers);

/// Replaces the file whole. Throws Error when it can't be written, and on numbers that don't fit together.
void write_scenes(const std::filesystem::path& file, const Scenes& scenes);
/// Throws Error, naming the file and what was expected there, when it can't be read or holds something else.
Scenes read_scenes(const std::filesystem::path& file);

}  // namespace lockstep::run
