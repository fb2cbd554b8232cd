// SPDX-License-Identifier: Apache-2.0
#include "lockstep/run/scenes.h"

#include <bit>
#include <cstring>

#include "lockstep/base/detail/base64.h"
#include "lockstep/base/detail/file.h"
#include "lockstep/pictures/image.h"
#include "lockstep/run/detail/json.h"

namespace lockstep::run {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are packed as they lie in memory");

template <class Number>
std::vector<Number> unpacked(const JsonObject& object, const char* key) {
  const std::string bytes = from_base64(object.string(key).value_or(""), object.where() + ": " + key);
  if (bytes.size() % sizeof(Number) != 0)
    object.wrong("'", key, "' has ", bytes.size(), " bytes, expected a multiple of ", sizeof(Number));
  std::vector<Number> numbers(bytes.size() / sizeof(Number));
  if (!bytes.empty()) std::memcpy(numbers.data(), bytes.data(), bytes.size());
  return numbers;
}

// Says what is wrong with scenes; empty when nothing is.
std::string fault(const Scenes& scenes) {
  const size_t classes = scenes.classes.size();
  if (classes > Scene::kUnknown) return text("there are ", classes, " classes, expected at most 255");
  for (size_t i = 0; i < scenes.scenes.size(); ++i) {
    const Scene& scene = scenes.scenes[i];
    const size_t size = scene.voxels.size();
    if (scene.labels.size() != size || scene.predictions.size() != size ||
        (!scene.colours.empty() && scene.colours.size() != size))
      return text("scene ", i, " has ", size, " voxels, ", scene.labels.size(), " labels, ", scene.predictions.size(),
                  " predictions and ", scene.colours.size(), " colours, expected as many of each");
    for (const uint8_t label : scene.labels)
      if (label >= classes && label != Scene::kUnknown)
        return text("scene ", i, " has the label ", +label, ", expected one of ", classes, " classes");
    for (const uint8_t prediction : scene.predictions)
      if (prediction >= classes)
        return text("scene ", i, " has the prediction ", +prediction, ", expected one of ", classes, " classes");
  }
  return "";
}

}  // namespace

template <class Number>
std::string packed(const std::vector<Number>& numbers) {
  return base64({reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(Number)});
}
template std::string packed(const std::vector<uint8_t>& numbers);
template std::string packed(const std::vector<pictures::Rgb>& numbers);
template std::string packed(const std::vector<std::array<uint16_t, 3>>& numbers);

void write_scenes(const std::filesystem::path& file, const Scenes& scenes) {
  const std::string wrong = fault(scenes);
  require(wrong.empty(), "write_scenes", file, ": ", wrong);
  Json json{{"classes", scenes.classes}, {"scenes", Json::array()}};
  for (const Scene& scene : scenes.scenes)
    json["scenes"].push_back({{"id", scene.id},
                              {"mark", finite(scene.mark)},
                              {"voxels", packed(scene.voxels)},
                              {"labels", packed(scene.labels)},
                              {"predictions", packed(scene.predictions)},
                              {"colours", packed(scene.colours)}});
  write_file(file, dump_json(json) + "\n");
}

Scenes read_scenes(const std::filesystem::path& file) {
  const Json json = parse_json("read_scenes", read_file(file), file.string());
  const JsonObject object(json, "read_scenes", file.string());
  Scenes scenes{object.strings("classes"), {}};
  object.for_each("scenes", [&](const JsonObject& one) {
    scenes.scenes.push_back({.id = one.integer("id").value_or(0),
                             .mark = one.number("mark").value_or(1),
                             .voxels = unpacked<std::array<uint16_t, 3>>(one, "voxels"),
                             .labels = unpacked<uint8_t>(one, "labels"),
                             .predictions = unpacked<uint8_t>(one, "predictions"),
                             .colours = unpacked<pictures::Rgb>(one, "colours")});
  });
  if (const std::string wrong = fault(scenes); !wrong.empty()) object.wrong(wrong);
  return scenes;
}

}  // namespace lockstep::run
