// SPDX-License-Identifier: Apache-2.0
// Keys, kernel regions, and the coordinate manager with its maps as tensors.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/tensor.h>

#include <algorithm>

#include "bindings.h"
#include "lockstep/base/error.h"

namespace py = pybind11;

namespace lockstep::python {

using sparse::AxisValues;
using sparse::CoordinateManager;
using sparse::CoordinateMapKey;
using sparse::KernelRegion;
using sparse::LayerGeometry;

namespace {

/// Where the # of a number stands at the end of a string id; its size where none does.
size_t number_in(const std::string& id) {
  const size_t mark = id.find_last_not_of("0123456789");
  const bool numbered = mark != std::string::npos && id[mark] == '#' && mark + 1 < id.size() && id.size() - mark < 19;
  return numbered ? mark : id.size();
}

/// Python's keys have one text beside the stride: the user's label, then # and the number where the manager has counted
/// one, or where the label itself ends that way.
std::string string_id(const CoordinateMapKey& key) {
  const bool plain = key.number == 0 && number_in(key.label) == key.label.size();
  return plain ? key.label : key.label + "#" + std::to_string(key.number);
}

CoordinateMapKey key_of(AxisValues stride, const std::string& id) {
  const size_t mark = number_in(id);
  return {std::move(stride), id.substr(0, mark), mark == id.size() ? 0 : std::stoll(id.substr(mark + 1))};
}

}  // namespace

MapKey::MapKey(int64_t coordinate_size) : coordinate_size_(coordinate_size) {
  require(coordinate_size >= 2, "CoordinateMapKey", "coordinate size is ", coordinate_size,
          ", expected 1 + D, which is 2 or more");
}

MapKey::MapKey(CoordinateMapKey key)
    : coordinate_size_(static_cast<int64_t>(key.tensor_stride.size()) + 1), key_(std::move(key)) {}

const CoordinateMapKey& MapKey::get() const {
  require(is_set(), "CoordinateMapKey", "the key is empty, expected one that names a coordinate map");
  return *key_;
}

void MapKey::set(CoordinateMapKey key) {
  require(!is_set(), "CoordinateMapKey", "the key is '", to_string(), "' already, expected an empty one");
  require(static_cast<int64_t>(key.tensor_stride.size()) + 1 == coordinate_size_, "CoordinateMapKey",
          "tensor stride is ", sparse::to_string(key.tensor_stride), ", expected ", coordinate_size_ - 1, " values");
  key_ = std::move(key);
}

std::string MapKey::to_string() const {
  if (!is_set()) return "coordinate map key:not set";
  const std::string id = string_id(*key_);
  return "coordinate map key:" + sparse::to_string(key_->tensor_stride) + (id.empty() ? "" : ":" + id);
}

at::Tensor rows_or_all(const at::Tensor& rows, int64_t count) {
  return rows.defined() ? rows : at::arange(count, at::kLong);
}

namespace {

void bind_keys(py::module_& module) {
  py::class_<MapKey>(module, "CoordinateMapKey",
                     "Names a coordinate map of a manager: its tensor stride (one value an axis) and a string id. "
                     "CoordinateMapKey(1 + D) is an empty key.")
      .def(py::init<int64_t>(), py::arg("coordinate_size"))
      .def(py::init([](AxisValues stride, std::string id) { return MapKey(key_of(std::move(stride), id)); }),
           py::arg("tensor_stride"), py::arg("string_id") = "")
      .def("is_key_set", &MapKey::is_set)
      .def("get_coordinate_size", &MapKey::coordinate_size, "1 + D.")
      .def("get_tensor_stride", [](const MapKey& self) { return self.get().tensor_stride; })
      .def(
          "get_key", [](const MapKey& self) { return std::pair(self.get().tensor_stride, string_id(self.get())); },
          "(tensor stride, string id).")
      .def(
          "set_key",
          [](MapKey& self, AxisValues stride, std::string id) {
            self = MapKey(self.coordinate_size());
            self.set(key_of(std::move(stride), id));
          },
          py::arg("tensor_stride"), py::arg("string_id") = "")
      .def(
          "set_key",
          [](MapKey& self, std::pair<AxisValues, std::string> key) {
            self = MapKey(self.coordinate_size());
            self.set(key_of(std::move(key.first), key.second));
          },
          py::arg("key"))
      .def("__repr__", &MapKey::to_string)
      .def("__eq__",
           [](const MapKey& self, const py::object& other) {
             return py::isinstance<MapKey>(other) && self.is_set() && self == other.cast<const MapKey&>();
           })
      .def("__hash__", [](const MapKey& self) { return std::hash<std::string>()(self.to_string()); })
      .def(py::pickle(
          [](const MapKey& self) -> py::tuple {
            if (!self.is_set()) return py::make_tuple(self.coordinate_size());
            return py::make_tuple(self.get().tensor_stride, string_id(self.get()));
          },
          [](const py::tuple& state) {
            if (state.size() == 1) return MapKey(state[0].cast<int64_t>());
            return MapKey(key_of(state[0].cast<AxisValues>(), state[1].cast<std::string>()));
          }));
}

std::vector<int64_t> values_of(const at::Tensor& tensor) {
  const at::Tensor given = tensor.to(at::kCPU, at::kLong).contiguous();
  return {given.const_data_ptr<int64_t>(), given.const_data_ptr<int64_t>() + given.numel()};
}

void bind_regions(py::module_& module) {
  py::class_<KernelRegion>(module, "KernelRegion", "The offsets that a kernel looks at.")
      .def_static("hypercube", &KernelRegion::hypercube, py::arg("size"), py::arg("dilation"))
      .def_static("hypercross", &KernelRegion::hypercross, py::arg("size"), py::arg("dilation"))
      .def_static(
          "custom",
          [](const at::Tensor& offsets, AxisValues dilation) {
            return KernelRegion::with_offsets(values_of(offsets), std::move(dilation));
          },
          py::arg("offsets"), py::arg("dilation"), "Offsets [K, D], multiplied by dilation and tensor stride.")
      .def_property_readonly("volume", &KernelRegion::volume)
      .def(
          "offsets",
          [](const KernelRegion& self, const AxisValues& tensor_stride) {
            return at::tensor(self.offsets(tensor_stride), at::kLong).view({self.volume(), self.dimension()});
          },
          py::arg("tensor_stride"), "input - output, int64 [K, D].")
      .def("__repr__", &KernelRegion::to_string);
  py::class_<LayerGeometry>(module, "LayerGeometry", "How a layer's outputs lie to its inputs.")
      .def(py::init([](KernelRegion region, AxisValues stride, bool transposed, bool expand) {
             return LayerGeometry{std::move(region), std::move(stride), transposed, transposed && expand,
                                  !transposed && expand};
           }),
           py::arg("region"), py::arg("stride"), py::arg("transposed") = false, py::arg("expand") = false)
      .def("__repr__", &LayerGeometry::to_string);
}

/// (unique, inverse).
std::pair<at::Tensor, at::Tensor> maps_of(const sparse::CoordinateMap::Inserted& inserted, int64_t given) {
  return {rows_or_all(inserted.unique, inserted.map->size()), rows_or_all(inserted.inverse, given)};
}

/// The key of the origins of everything that the manager holds: those of the map with the most batch indices.
CoordinateMapKey origin_of_all(CoordinateManager& manager) {
  const std::vector<CoordinateMapKey> keys = manager.keys();
  require(!keys.empty(), "CoordinateManager::origin", "the manager has no coordinates, expected some");
  CoordinateMapKey most = manager.origin(keys[0]);
  for (const CoordinateMapKey& key : keys) {
    CoordinateMapKey origin = manager.origin(key);
    if (manager.size(origin) > manager.size(most)) most = std::move(origin);
  }
  return most;
}

/// [2, entries]: the rows on the input's side, those on the output's.
std::pair<at::Tensor, at::Tensor> entries_of(const sparse::RowMap& map) {
  std::vector<int64_t> in(map.entry_count()), out(map.entry_count());
  for (int64_t row = 0; row < map.out_size(); ++row)
    for (int64_t place = map.bounds()[row]; place < map.bounds()[row + 1]; ++place) {
      in[map.entry(place)] = map.columns()[place];
      out[map.entry(place)] = row;
    }
  return {at::tensor(in, at::kLong), at::tensor(out, at::kLong)};
}

/// Rows of `fine` whose coordinate, rounded down, is one of `coarse`, and which one it is.
std::pair<at::Tensor, at::Tensor> stride_map(const CoordinateManager& manager, const CoordinateMapKey& fine,
                                             const CoordinateMapKey& coarse) {
  const at::Tensor coordinates = manager.map(fine)->coordinates();
  std::vector<int64_t> step = {1};
  for (const int64_t value : coarse.tensor_stride) step.push_back(std::max<int64_t>(value, 1));
  const at::Tensor steps = at::tensor(step, at::kInt);
  const at::Tensor found = manager.map(coarse)->find((coordinates.floor_divide(steps) * steps).contiguous());
  const at::Tensor rows = at::nonzero(found.ge(0)).squeeze(1);
  return {rows, found.index_select(0, rows)};
}

/// (dimension, batch size, [(stride, id, coordinates)], [(number of a map, stride, number of a map)]).
py::tuple state_of(const CoordinateManager& manager) {
  const CoordinateManager::Snapshot snapshot = manager.snapshot();
  std::map<CoordinateMapKey, size_t> numbers;
  py::list maps, strided;
  for (const auto& [key, map] : snapshot.maps) {
    numbers.emplace(key, numbers.size());
    maps.append(py::make_tuple(key.tensor_stride, string_id(key), map->coordinates()));
  }
  for (const auto& each : snapshot.strided)
    strided.append(py::make_tuple(numbers.at(each.from), each.stride, numbers.at(each.to)));
  return py::make_tuple(manager.dimension(), snapshot.batch_size, maps, strided);
}

sparse::CoordinateManagerPtr manager_of(const py::tuple& state) {
  CoordinateManager::Snapshot snapshot;
  snapshot.batch_size = state[1].cast<int64_t>();
  for (const py::handle& each : state[2]) {
    const auto map = each.cast<std::tuple<AxisValues, std::string, at::Tensor>>();
    snapshot.maps.emplace_back(key_of(std::get<0>(map), std::get<1>(map)),
                               sparse::CoordinateMap::insert(std::get<2>(map)).map);
  }
  for (const py::handle& each : state[3]) {
    const auto strided = each.cast<std::tuple<size_t, AxisValues, size_t>>();
    snapshot.strided.push_back({snapshot.maps.at(std::get<0>(strided)).first, std::get<1>(strided),
                                snapshot.maps.at(std::get<2>(strided)).first});
  }
  auto manager = std::make_shared<CoordinateManager>(state[0].cast<int64_t>());
  manager->restore(snapshot);
  return manager;
}

void bind_manager(py::module_& module) {
  using Manager = CoordinateManager;
  py::class_<Manager, sparse::CoordinateManagerPtr> manager(module, "CoordinateManager",
                                                            "The coordinate maps of tensors that belong together.");
  manager.def(py::init<int64_t>(), py::arg("dimension"))
      .def_property_readonly("dimension", &Manager::dimension)
      .def_property("batch_size", &Manager::batch_size, &Manager::set_batch_size,
                    "The number of batch entries where somebody knows it, else 0.")
      .def("__repr__", &Manager::to_string)
      .def("contains", [](const Manager& self, const MapKey& key) { return self.contains(key.get()); })
      .def("size", [](const Manager& self, const MapKey& key) { return self.size(key.get()); })
      .def("keys",
           [](const Manager& self) {
             std::vector<MapKey> keys;
             for (CoordinateMapKey& key : self.keys()) keys.emplace_back(std::move(key));
             return keys;
           })
      .def(
          "coordinates", [](const Manager& self, const MapKey& key) { return self.map(key.get())->coordinates(); },
          "int32 [N, 1 + D], the manager's own memory.")
      .def(
          "insert",
          [](Manager& self, const at::Tensor& coordinates, AxisValues stride, const std::string& id) {
            const sparse::CoordinateMap::Inserted inserted = sparse::CoordinateMap::insert(coordinates);
            return std::pair(MapKey(self.insert(inserted.map, std::move(stride), id)),
                             maps_of(inserted, coordinates.size(0)));
          },
          py::arg("coordinates"), py::arg("tensor_stride"), py::arg("string_id") = "", ReleaseGil(),
          "(key, (unique int64 [M], inverse int64 [N])). Code takes any coordinates: they may lie off the stride's "
          "grid.")
      .def(
          "share_map",
          [](Manager& self, const Manager& from, const MapKey& key) { return MapKey(self.share(from, key.get())); },
          py::arg("manager"), py::arg("key"), ReleaseGil(), "The key here of a map that another manager has.")
      .def(
          "find",
          [](const Manager& self, const MapKey& key, const at::Tensor& coordinates) {
            return self.map(key.get())->find(coordinates);
          },
          py::arg("key"), py::arg("coordinates"), ReleaseGil(), "The row of each coordinate, int64 [M]; -1 for none.")
      .def(
          "stride",
          [](Manager& self, const MapKey& key, const AxisValues& stride) {
            return MapKey(self.stride(key.get(), stride));
          },
          py::arg("key"), py::arg("stride"), ReleaseGil())
      .def(
          "origin", [](Manager& self, const MapKey& key) { return MapKey(self.origin(key.get())); }, ReleaseGil())
      .def(
          "origin", [](Manager& self) { return MapKey(origin_of_all(self)); }, ReleaseGil())
      .def(
          "prune",
          [](Manager& self, const MapKey& key, const at::Tensor& keep) { return MapKey(self.prune(key.get(), keep)); },
          py::arg("key"), py::arg("keep"), ReleaseGil())
      .def(
          "unite",
          [](Manager& self, const std::vector<MapKey>& keys) {
            std::vector<CoordinateMapKey> given;
            for (const MapKey& key : keys) given.push_back(key.get());
            return MapKey(self.unite(given));
          },
          ReleaseGil())
      .def(
          "out_key",
          [](Manager& self, const MapKey& in, const LayerGeometry& geometry) {
            return MapKey(self.out_key(in.get(), geometry));
          },
          ReleaseGil())
      .def("out_stride", [](const Manager& self, const MapKey& in,
                            const LayerGeometry& geometry) { return self.out_stride(in.get(), geometry); })
      .def(
          "row_map",
          [](Manager& self, const MapKey& from, const MapKey& to) {
            return entries_of(*self.row_map(from.get(), to.get()));
          },
          ReleaseGil(), "Rows of `from` and of `to` that have the same coordinate.")
      .def(
          "stride_map",
          [](const Manager& self, const MapKey& fine, const MapKey& coarse) {
            return stride_map(self, fine.get(), coarse.get());
          },
          ReleaseGil())
      .def(
          "kernel_map",
          [](Manager& self, const MapKey& in, const MapKey& out, const KernelRegion& region, bool transposed) {
            const sparse::KernelMapPtr map = self.kernel_map(in.get(), out.get(), region, transposed);
            std::map<int64_t, at::Tensor> lists;
            for (int64_t k = 0; k < map->volume(); ++k)
              if (const at::Tensor rows = map->rows(k); rows.size(1) > 0) lists.emplace(k, rows.to(at::kInt));
            return lists;
          },
          ReleaseGil(), "{offset's number: int32 [2, pairs]}, without offsets that have no pairs.")
      .def(
          "copy",
          [](const Manager& self) {
            auto copy = std::make_shared<Manager>(self.dimension());
            copy->restore(self.snapshot());
            return copy;
          },
          ReleaseGil(), "A manager of its own that shares the coordinates, which never change.")
      .def(py::pickle(&state_of, &manager_of))
      .def("statistics", [](const Manager& self) {
        const Manager::Statistics sum = self.statistics();
        py::dict out;
        out["coordinate_maps"] = sum.coordinate_maps;
        out["kernel_maps"] = sum.kernel_maps;
        out["row_maps"] = sum.row_maps;
        out["pairs"] = sum.pairs;
        out["bytes"] = sum.bytes;
        out["hits"] = sum.hits;
        out["misses"] = sum.misses;
        return out;
      });
  module.def(
      "unique_rows",
      [](const at::Tensor& coordinates) {
        return maps_of(sparse::CoordinateMap::insert(coordinates), coordinates.size(0));
      },
      py::arg("coordinates"), ReleaseGil(), "(unique int64 [M], inverse int64 [N]) of int32 [N, 1 + D].");
}

}  // namespace

void bind_coordinates(py::module_& module) {
  bind_keys(module);
  bind_regions(module);
  bind_manager(module);
}

}  // namespace lockstep::python
