// SPDX-License-Identifier: Apache-2.0
// ModelNet: a folder a class, in it train and test with OFF meshes. Points are strewn over a mesh evenly by area; their
// mean becomes the origin, and the farthest lies at a distance of 1. Each has the feature 1: shape is all there is.
#include <algorithm>
#include <cctype>
#include <cmath>

#include "data/clouds/formats/cloud_format.h"
#include "data/clouds/scene_files.h"
#include "data/formats/byte_cursor.h"
#include "lockstep/base/detail/file.h"
#include "lockstep/data/ply.h"
#include "lockstep/data/registry.h"
#include "lockstep/numerics/random.h"

namespace lockstep::data {
namespace {

constexpr int64_t kUsualPoints = 2048, kMostPoints = 10'000'000;
constexpr uint64_t kModelStream = 0x6D6F64656C;  // "model"

using Vertex = std::array<double, 3>;

struct Mesh {
  std::vector<Vertex> vertices;
  std::vector<std::array<int64_t, 3>> triangles;
};

/// A whole number of these bounds.
int64_t count_in(ByteCursor& at, double least, double most, const char* what) {
  const double value = at.number();
  if (!(value >= least && value <= most) || value != std::trunc(value))
    at.wrong(what, " is ", value, ", expected a whole number from ", least, " to ", std::floor(most));
  return static_cast<int64_t>(value);
}

/// Makes spaces of comments: from # to the end of a line.
void blank_comments(std::span<uint8_t> bytes) {
  bool comment = false;
  for (uint8_t& byte : bytes) {
    comment = byte != '\n' && (comment || byte == '#');
    if (comment) byte = ' ';
  }
}

/// Makes spaces of the file's first word, which may lack its end; whether colours or normals follow the places of
/// vertices.
bool take_header(std::span<uint8_t> bytes, const std::string& name) {
  const auto begin = std::ranges::find_if(bytes, [](uint8_t c) { return std::isspace(c) == 0; });
  for (const std::string_view header : {"OFF", "COFF", "NOFF", "CNOFF"}) {
    const auto end = begin + std::min(std::ssize(header), bytes.end() - begin);
    if (!std::equal(begin, end, header.begin(), header.end())) continue;
    std::fill(begin, end, uint8_t{' '});
    return header != "OFF";
  }
  fail("open_dataset", name, ", offset ", begin - bytes.begin(),
       ": this is no OFF file, expected it to begin with 'OFF', or 'COFF' where vertices have colours");
}

/// "OFF", numbers of vertices, faces and edges, the vertices, the faces, whose colours may follow in their lines. Many
/// of ModelNet40's files lack the end of the first line: "OFF490 518 0".
Mesh read_off(const fs::path& file) {
  auto bytes = read_bytes(file, "open_dataset");
  const std::string name = file.string();
  blank_comments(bytes);
  const bool more_than_places = take_header(bytes, name);
  ByteCursor at("open_dataset", bytes, name);
  const auto most = static_cast<double>(bytes.size());  // of what takes a byte at least
  const int64_t vertices = count_in(at, 1, most / 6, "the number of vertices");
  const int64_t faces = count_in(at, 1, most / 8, "the number of faces");
  count_in(at, 0, 1e12, "the number of edges");
  Mesh mesh;
  mesh.vertices.resize(vertices);
  for (Vertex& vertex : mesh.vertices) {
    for (double& value : vertex) {
      value = at.number();
      if (!std::isfinite(value)) at.wrong("a vertex has the coordinate ", value, ", expected a finite one");
    }
    if (more_than_places) at.skip_line();
  }
  for (int64_t i = 0; i < faces; ++i) {
    const int64_t corners = count_in(at, 3, most / 2, "the number of a face's corners");
    const auto corner = [&] { return count_in(at, 0, static_cast<double>(vertices - 1), "a corner of a face"); };
    const int64_t first = corner();
    for (int64_t previous = corner(), left = corners - 2; left > 0; --left) {
      const int64_t next = corner();
      mesh.triangles.push_back({first, previous, next});
      previous = next;
    }
    at.skip_line();
  }
  if (!at.at_end()) at.number(), at.wrong("there is more behind the last face, expected the end of the file");
  return mesh;
}

Vertex minus(const Vertex& a, const Vertex& b) {
  return {a[0] - b[0], a[1] - b[1], a[2] - b[2]};
}

double length(const Vertex& v) {
  return std::sqrt(v[0] * v[0] + v[1] * v[1] + v[2] * v[2]);
}

double area(const Mesh& mesh, const std::array<int64_t, 3>& triangle) {
  const Vertex a = minus(mesh.vertices[triangle[1]], mesh.vertices[triangle[0]]),
               b = minus(mesh.vertices[triangle[2]], mesh.vertices[triangle[0]]);
  return length({a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]}) / 2;
}

std::vector<Vertex> strew(const Mesh& mesh, const fs::path& file, int64_t count, RandomKey key) {
  std::vector<double> ends;  // of the triangles, laid one after another by area
  double sum = 0;
  for (const auto& triangle : mesh.triangles) ends.push_back(sum += area(mesh, triangle));
  require(sum > 0 && std::isfinite(sum), "open_dataset", file.string(), ": the mesh has the area ", sum,
          ", expected it above 0");
  std::vector<Vertex> points;
  for (int64_t i = 0; i < count; ++i) {
    const auto end = std::ranges::upper_bound(ends, sum * uniform(key, 3 * i));
    const auto& [a, b, c] = mesh.triangles[std::min<std::ptrdiff_t>(end - ends.begin(), std::ssize(ends) - 1)];
    const double root = std::sqrt(uniform(key, 3 * i + 1)), v = uniform(key, 3 * i + 2);
    Vertex point;
    for (size_t axis = 0; axis < 3; ++axis)
      point[axis] = (1 - root) * mesh.vertices[a][axis] + root * (1 - v) * mesh.vertices[b][axis] +
                    root * v * mesh.vertices[c][axis];
    points.push_back(point);
  }
  return points;
}

Cloud to_unit_sphere(std::vector<Vertex> points) {
  Vertex mean{};
  for (const Vertex& point : points)
    for (size_t axis = 0; axis < 3; ++axis) mean[axis] += point[axis] / static_cast<double>(points.size());
  double radius = 0;
  for (Vertex& point : points) radius = std::max(radius, length(point = minus(point, mean)));
  Cloud cloud{.channels = 1};
  for (const Vertex& point : points) {
    Point out;
    for (size_t axis = 0; axis < 3; ++axis) out[axis] = static_cast<float>(radius > 0 ? point[axis] / radius : 0);
    cloud.points.push_back(out);
  }
  cloud.features.assign(cloud.points.size(), 1.0F);
  return cloud;
}

/// A mesh, or points that were measured on a thing.
Cloud read_thing(const std::string& file, const DatasetInfo& info) {
  if (ending_of(file) == ".off")
    return to_unit_sphere(strew(read_off(file), file, info.mesh_points, RandomKey{0, kModelStream}));
  std::vector<Vertex> points;
  for (const Point& point : cloud_of(read_ply(file), file).points) points.push_back({point[0], point[1], point[2]});
  return to_unit_sphere(std::move(points));
}

DatasetPointer open_modelnet(std::string_view spec, Subset subset, const DatasetOptions& options) {
  const auto [path, points] = path_and_number(spec, kUsualPoints);
  require_folder(path);
  require(1 <= points && points <= kMostPoints, "open_dataset", "there are ", points,
          " points a mesh, expected modelnet40:FOLDER:POINTS with 1 to ", kMostPoints);
  DatasetInfo info{
      .name = "modelnet40", .input_shape = {1}, .voxel = options.voxel, .whole_clouds = true, .mesh_points = points};
  std::vector<SceneFiles> scenes;
  for (const fs::path& folder : sorted_folders(path)) {
    require_folder(folder / to_string(subset));
    for (const fs::path& file : sorted_files(folder / to_string(subset))) {
      if (ending_of(file) != ".off") continue;
      scenes.push_back({{file}, points, std::ssize(info.class_names)});
    }
    info.class_names.push_back(folder.filename().string());
  }
  require(!scenes.empty(), "open_dataset", path.string(), " has no meshes for ", to_string(subset), ", expected CLASS/",
          to_string(subset), "/*.off");
  info.classes = std::ssize(info.class_names);
  const RandomKey key = RandomKey{options.seed, kModelStream}.fold(static_cast<uint64_t>(subset));
  const auto read = [key, points = points](int64_t id, std::span<const fs::path> files) {
    return to_unit_sphere(strew(read_off(files[0]), files[0], points, key.fold(id)));
  };
  return make_scenes(std::move(info), std::move(scenes), read, text(points, " ", key.seed, " ", key.stream, " "));
}

}  // namespace

DatasetKind modelnet_kind() {
  return {.name = "modelnet40",
          .usage = "modelnet40:FOLDER[:POINTS]",
          .description = "CLASS/[train|test]/*.off; a class a cloud, which has 2048 points or so many",
          .clouds = true,
          .open = open_modelnet};
}

CloudFormat modelnet_format() {
  return {.read = read_thing};
}

}  // namespace lockstep::data
