// SPDX-License-Identifier: Apache-2.0
#include "data/clouds/scene_files.h"

#include <charconv>
#include <cmath>

#include "data/formats/byte_cursor.h"
#include "lockstep/base/detail/file.h"

namespace lockstep::data {
namespace {

class Scenes : public CloudDataset {
 public:
  Scenes(DatasetInfo info, std::vector<SceneFiles> scenes, ReadScene read, std::string recipe)
      : CloudDataset(std::move(info)), scenes_(std::move(scenes)), read_(std::move(read)), recipe_(std::move(recipe)) {}
  int64_t cost(int64_t id) const override { return 1 + scenes_[id].points; }
  int64_t label(int64_t id) const override { return scenes_[id].label; }
  std::string source(int64_t id) const override {
    std::string out = text(info().name, " ", recipe_, id);
    for (const fs::path& file : scenes_[id].files) {
      std::error_code ignored;
      out += text("\n", fs::absolute(file).string(), " ", fs::file_size(file, ignored), " ",
                  fs::last_write_time(file, ignored).time_since_epoch().count());
    }
    return out;
  }

 protected:
  Cloud measure(int64_t id) const override { return read_(id, scenes_[id].files); }

 private:
  std::vector<SceneFiles> scenes_;
  ReadScene read_;
  std::string recipe_;
};

/// As many rows of so many bytes as the file has.
int64_t rows_in(const std::vector<uint8_t>& bytes, size_t row, const fs::path& file) {
  const size_t rest = bytes.size() % row;
  require(rest == 0, "open_dataset", file.string(), ", offset ", bytes.size() - rest, ": the file ends with ", rest,
          " bytes, expected ", row, " bytes a point; it is truncated, copy or download it again");
  return static_cast<int64_t>(bytes.size() / row);
}

}  // namespace

std::shared_ptr<const CloudDataset> make_scenes(DatasetInfo info, std::vector<SceneFiles> scenes, ReadScene read,
                                                std::string recipe) {
  info.size = static_cast<int64_t>(scenes.size());
  return std::make_shared<Scenes>(std::move(info), std::move(scenes), std::move(read), std::move(recipe));
}

fs::path require_file(fs::path file, const char* what) {
  std::error_code ignored;
  require(fs::is_regular_file(file, ignored), "open_dataset", file.string(), " is not there, expected ", what);
  return file;
}

int64_t points_in(const fs::path& file, int64_t bytes_a_point) {
  std::error_code ignored;
  return static_cast<int64_t>(fs::file_size(file, ignored)) / bytes_a_point;
}

std::pair<fs::path, int64_t> path_and_number(std::string_view spec, int64_t otherwise) {
  const size_t colon = spec.rfind(':');
  if (colon == std::string_view::npos) return {spec, otherwise};
  const std::string_view digits = spec.substr(colon + 1);
  int64_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size()) return {spec, otherwise};
  return {spec.substr(0, colon), number};
}

Cloud read_scan(std::span<const fs::path> points_and_labels, const ScanFormat& format) {
  const fs::path& label_file = points_and_labels[1];
  Cloud cloud = read_scan_without_labels(points_and_labels[0], format);
  const auto bytes = read_bytes(label_file, "open_dataset");
  const int64_t labels = rows_in(bytes, format.label_bytes, label_file);
  require(labels == cloud.size(), "open_dataset", label_file.string(), ", offset ", bytes.size(), ": it has ", labels,
          " labels, expected ", cloud.size(), ", one for each point of ", points_and_labels[0].string());
  const std::string name = label_file.string();
  ByteCursor at("open_dataset", bytes, name);
  for (int64_t i = 0; i < labels; ++i) {
    const uint32_t label = format.label_bytes == 1 ? at.take<uint8_t>() : at.take<uint32_t>();
    const auto known = format.class_of(label);
    if (!known) at.wrong("point ", i, " has the label ", label, ", expected one of the data set's");
    cloud.labels.push_back(*known);
  }
  return cloud;
}

Cloud read_scan_without_labels(const fs::path& file, const ScanFormat& format) {
  const std::string name = file.string();
  require(name.ends_with(format.suffix), "open_dataset", name, " is no scan of this data set, expected a file *",
          format.suffix, " of ", format.floats, " floats a point");
  const auto bytes = read_bytes(file, "open_dataset");
  const int64_t points = rows_in(bytes, format.floats * sizeof(float), file);
  ByteCursor at("open_dataset", bytes, name);
  Cloud cloud{.channels = 1};
  for (int64_t i = 0; i < points; ++i) {
    Point point;
    for (float& value : point) {
      value = at.take<float>();
      if (!std::isfinite(value)) at.wrong("point ", i, " has the coordinate ", value, ", expected a finite one");
    }
    const auto reflectance = at.take<float>();
    if (!std::isfinite(reflectance)) at.wrong("point ", i, " has the reflectance ", reflectance);
    for (size_t other = 4; other < format.floats; ++other) at.take<float>();
    cloud.points.push_back(point);
    cloud.features.push_back(reflectance / format.brightest);
  }
  return cloud;
}

}  // namespace lockstep::data
