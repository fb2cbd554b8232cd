// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/cloud_files.h"

#include <map>

#include "data/clouds/formats/cloud_format.h"
#include "data/formats/file.h"
#include "lockstep/base/log.h"
#include "lockstep/data/ply.h"

namespace lockstep::data {
namespace {

CloudFormat format_of(const DatasetInfo& info) {
  static const std::map<std::string, CloudFormat> formats{{"scannet", scannet_format()},
                                                          {"semantic-kitti", semantic_kitti_format()},
                                                          {"nuscenes", nuscenes_format()},
                                                          {"modelnet40", modelnet_format()}};
  const auto found = formats.find(info.name);
  return found == formats.end() ? CloudFormat{} : found->second;
}

Cloud read_points(const std::string& file, const DatasetInfo& info) {
  require(ending_of(file) != ".off" && ending_of(file) != ".bin", "read_cloud_file", "'", file,
          "' is no PLY file, expected one for a network of ", info.name,
          ": meshes (.off) are for networks of ModelNet, scans (.bin) for those of SemanticKITTI and nuScenes");
  const Ply ply = read_ply(file);
  Cloud cloud = cloud_of(ply, file);
  require(cloud.channels == info.input_shape[0], "read_cloud_file", "'", file, "' has points with ", cloud.channels,
          " features, expected ", info.input_shape[0], ", as the clouds of ", info.name, " have");
  if (!has_colours(ply)) log_warning("'", file, "' has no colours (red, green, blue): its points are taken as grey");
  return cloud;
}

}  // namespace

Cloud read_cloud_file(const std::string& file, const DatasetInfo& info) {
  const CloudFormat format = format_of(info);
  return (format.read == nullptr ? read_points : format.read)(file, info);
}

std::string label_file_name(const std::string& cloud_file, const DatasetInfo& info) {
  const CloudFormat format = format_of(info);
  std::string name = name_of(cloud_file);
  const bool usual = name.ends_with(format.cloud_suffix);
  name.resize(usual ? name.size() - std::string_view(format.cloud_suffix).size()
                    : fs::path(name).stem().string().size());
  return name + format.label_suffix;
}

std::string label_file(std::span<const int64_t> classes, const DatasetInfo& info) {
  const CloudFormat format = format_of(info);
  std::string out;
  for (const int64_t known : classes) {
    require(0 <= known && known < info.classes, "label_file", "a point has the class ", known, ", expected 0 to ",
            info.classes - 1, ", one of ", info.name);
    const int64_t label = format.label_of == nullptr ? known : format.label_of(known);
    if (format.label_bytes == 0) out.append(std::to_string(label)).push_back('\n');
    for (size_t byte = 0; byte < format.label_bytes; ++byte) out.push_back(static_cast<char>(label >> 8 * byte));
  }
  return out;
}

}  // namespace lockstep::data
