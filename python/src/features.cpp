// SPDX-License-Identifier: Apache-2.0
// Layers as functions of features: coordinates are named by a manager and keys, gradients come from the engine.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>

#include "bindings.h"
#include "lockstep/base/error.h"
#include "lockstep/norm/detail/batch_statistics.h"
#include "lockstep/sparse/convolution.h"
#include "lockstep/sparse/detail/row_products.h"
#include "lockstep/sparse/operations.h"

namespace py = pybind11;

namespace lockstep::python {
namespace {

using sparse::AxisValues;
using sparse::CoordinateManagerPtr;
using sparse::LayerGeometry;
using sparse::Pooling;
using sparse::SparseTensor;
using MaybeTensor = std::optional<at::Tensor>;

at::Tensor or_undefined(const MaybeTensor& given) {
  return given.value_or(at::Tensor());
}

/// Where a layer's output lies: the key that the caller gave, or else one that the layer finds and `out` then names.
struct Output {
  MapKey& out;

  sparse::OutputCoordinates wanted() const {
    return out.is_set() ? sparse::OutputCoordinates(out.get()) : sparse::OutputCoordinates();
  }
  at::Tensor take(const SparseTensor& y) const {
    if (!out.is_set()) out.set(y.key());
    return y.features();
  }
};

at::Tensor convolution(const at::Tensor& x, const at::Tensor& kernel, const MaybeTensor& bias,
                       const CoordinateManagerPtr& manager, const MapKey& in, MapKey& out,
                       const LayerGeometry& geometry, int64_t groups) {
  const Output output{out};
  return output.take(
      sparse::convolution({x, in.get(), manager}, kernel, or_undefined(bias), geometry, groups, output.wanted()));
}

at::Tensor channelwise_convolution(const at::Tensor& x, const at::Tensor& kernel, const MaybeTensor& bias,
                                   const CoordinateManagerPtr& manager, const MapKey& in, MapKey& out,
                                   const LayerGeometry& geometry) {
  const Output output{out};
  return output.take(
      sparse::channelwise_convolution({x, in.get(), manager}, kernel, or_undefined(bias), geometry, output.wanted()));
}

at::Tensor pool(const at::Tensor& x, Pooling pooling, const CoordinateManagerPtr& manager, const MapKey& in,
                MapKey& out, const LayerGeometry& geometry) {
  const Output output{out};
  return output.take(sparse::pool({x, in.get(), manager}, pooling, geometry, output.wanted()));
}

at::Tensor global_pool(const at::Tensor& x, Pooling pooling, const CoordinateManagerPtr& manager, const MapKey& in,
                       MapKey& out) {
  const SparseTensor pooled = sparse::global_pool({x, in.get(), manager}, pooling);
  if (out.is_set())
    require(out.get() == pooled.key(), "global_pool", "the output's key is '", out.to_string(), "', expected '",
            pooled.key().to_string(), "', one origin for each batch index, or an empty key");
  return Output{out}.take(pooled);
}

at::Tensor broadcast(const at::Tensor& x, const at::Tensor& global, const CoordinateManagerPtr& manager,
                     const MapKey& in, const MapKey& global_key) {
  return sparse::broadcast({x, in.get(), manager}, {global, global_key.get(), manager}).features();
}

at::Tensor prune(const at::Tensor& x, const at::Tensor& keep, const CoordinateManagerPtr& manager, const MapKey& in,
                 MapKey& out) {
  return Output{out}.take(sparse::prune({x, in.get(), manager}, keep));
}

std::vector<SparseTensor> sparse_tensors(const std::vector<at::Tensor>& features, const std::vector<MapKey>& keys,
                                         const CoordinateManagerPtr& manager) {
  require(features.size() == keys.size(), "unite", "there are ", features.size(), " features and ", keys.size(),
          " keys, expected as many of each");
  std::vector<SparseTensor> tensors;
  for (size_t i = 0; i < keys.size(); ++i) tensors.emplace_back(features[i], keys[i].get(), manager);
  return tensors;
}

at::Tensor unite(const std::vector<at::Tensor>& features, const std::vector<MapKey>& keys,
                 const CoordinateManagerPtr& manager, MapKey& out) {
  return Output{out}.take(sparse::unite(sparse_tensors(features, keys, manager)));
}

/// Features at the coordinates of another key; zero where there are none.
at::Tensor features_on(const at::Tensor& x, const CoordinateManagerPtr& manager, const MapKey& from, const MapKey& to) {
  if (from == to) return x;
  return sparse::sum_rows(x, manager->row_map(from.get(), to.get()));
}

at::Tensor features_at(const at::Tensor& x, const CoordinateManagerPtr& manager, const MapKey& key,
                       const at::Tensor& coordinates) {
  return SparseTensor(x, key.get(), manager).features_at_coordinates(coordinates);
}

/// (rows of the tensor, numbers of the points, weights), one for each corner that the tensor has.
std::tuple<at::Tensor, at::Tensor, at::Tensor> interpolation_map(const CoordinateManagerPtr& manager, const MapKey& key,
                                                                 const at::Tensor& points) {
  const at::Tensor no_features = at::empty({manager->size(key.get()), 0});
  const sparse::InterpolationMap corners = SparseTensor(no_features, key.get(), manager).interpolation_map(points);
  std::vector<int64_t> in(corners.map->entry_count()), out(corners.map->entry_count());
  for (int64_t row = 0; row < corners.map->out_size(); ++row)
    for (int64_t place = corners.map->bounds()[row]; place < corners.map->bounds()[row + 1]; ++place) {
      in[corners.map->entry(place)] = corners.map->columns()[place];
      out[corners.map->entry(place)] = row;
    }
  const auto tensor = [](const std::vector<int64_t>& values) {
    at::Tensor made = at::empty({static_cast<int64_t>(values.size())}, at::kLong);
    std::copy(values.begin(), values.end(), made.mutable_data_ptr<int64_t>());
    return made;
  };
  return {tensor(in), tensor(out), corners.weights};
}

std::pair<at::Tensor, at::Tensor> dense(const at::Tensor& x, const CoordinateManagerPtr& manager, const MapKey& key,
                                        const std::optional<std::vector<int64_t>>& shape,
                                        const std::optional<AxisValues>& minimum) {
  return SparseTensor(x, key.get(), manager).dense(shape, minimum);
}

at::Tensor instance_norm(const at::Tensor& x, const CoordinateManagerPtr& manager, const MapKey& key,
                         const MaybeTensor& weight, const MaybeTensor& bias, double epsilon) {
  return sparse::instance_norm({x, key.get(), manager}, or_undefined(weight), or_undefined(bias), epsilon).features();
}

at::Tensor batch_norm(const at::Tensor& x, const MaybeTensor& weight, const MaybeTensor& bias,
                      const MaybeTensor& running_mean, const MaybeTensor& running_var, bool training, double momentum,
                      double epsilon) {
  return sparse::batch_norm(x, or_undefined(weight), or_undefined(bias), or_undefined(running_mean),
                            or_undefined(running_var), training, momentum, epsilon);
}

std::vector<at::Tensor> rows_of_batches(const CoordinateManagerPtr& manager, const MapKey& key) {
  const SparseTensor x(at::empty({manager->size(key.get()), 0}), key.get(), manager);
  std::vector<at::Tensor> rows;
  for (int64_t batch = 0; batch < x.batch_size(); ++batch) rows.push_back(x.rows_at(batch));
  return rows;
}

void bind_layers(py::module_& module) {
  py::enum_<Pooling>(module, "Pooling")
      .value("sum", Pooling::sum)
      .value("average", Pooling::average)
      .value("max", Pooling::max);
  module.def("convolution", &convolution, py::arg("x"), py::arg("kernel"), py::arg("bias"), py::arg("manager"),
             py::arg("in_key"), py::arg("out_key"), py::arg("geometry"), py::arg("groups") = 1, ReleaseGil(),
             "x [N, Cin], kernel [K, Cin / groups, Cout] or [Cin, Cout] -> [M, Cout]. An empty out_key is set.");
  module.def("channelwise_convolution", &channelwise_convolution, py::arg("x"), py::arg("kernel"), py::arg("bias"),
             py::arg("manager"), py::arg("in_key"), py::arg("out_key"), py::arg("geometry"), ReleaseGil(),
             "x [N, C], kernel [K, C] -> [M, C].");
  module.def("pool", &pool, py::arg("x"), py::arg("pooling"), py::arg("manager"), py::arg("in_key"), py::arg("out_key"),
             py::arg("geometry"), ReleaseGil());
  module.def("global_pool", &global_pool, py::arg("x"), py::arg("pooling"), py::arg("manager"), py::arg("in_key"),
             py::arg("out_key"), ReleaseGil());
  module.def("broadcast", &broadcast, py::arg("x"), py::arg("global_features"), py::arg("manager"), py::arg("in_key"),
             py::arg("global_key"), ReleaseGil(), "For each row of x the global row of its batch index.");
  module.def("prune", &prune, py::arg("x"), py::arg("keep"), py::arg("manager"), py::arg("in_key"), py::arg("out_key"),
             ReleaseGil());
  module.def("unite", &unite, py::arg("features"), py::arg("keys"), py::arg("manager"), py::arg("out_key"),
             ReleaseGil());
  module.def("features_on", &features_on, py::arg("x"), py::arg("manager"), py::arg("from_key"), py::arg("to_key"),
             ReleaseGil());
  module.def("features_at", &features_at, py::arg("x"), py::arg("manager"), py::arg("key"), py::arg("coordinates"),
             ReleaseGil());
  module.def("interpolation_map", &interpolation_map, py::arg("manager"), py::arg("key"), py::arg("points"),
             ReleaseGil());
  module.def("dense", &dense, py::arg("x"), py::arg("manager"), py::arg("key"), py::arg("shape") = py::none(),
             py::arg("minimum") = py::none(), ReleaseGil());
  module.def("rows_of_batches", &rows_of_batches, ReleaseGil());
}

void bind_rows(py::module_& module) {
  module.def("pool_pairs", &sparse::pool_pairs, py::arg("x"), py::arg("pooling"), py::arg("in_rows"),
             py::arg("out_rows"), py::arg("rows"), ReleaseGil(),
             "Row r of the result takes x[in_rows[i]] for all i with out_rows[i] = r.");
  module.def("take_rows", &sparse::take_rows, py::arg("x"), py::arg("index"), ReleaseGil());
  module.def("put_rows", &sparse::put_rows, py::arg("x"), py::arg("index"), py::arg("rows"), ReleaseGil());
  module.def("spmm", &sparse::spmm, py::arg("rows"), py::arg("columns"), py::arg("values"), py::arg("size"),
             py::arg("x"), py::arg("average") = false, ReleaseGil());
}

void bind_norms(py::module_& module) {
  module.def("instance_norm", &instance_norm, py::arg("x"), py::arg("manager"), py::arg("key"), py::arg("weight"),
             py::arg("bias"), py::arg("eps"), ReleaseGil());
  module.def("batch_norm", &batch_norm, py::arg("x"), py::arg("weight"), py::arg("bias"), py::arg("running_mean"),
             py::arg("running_var"), py::arg("training"), py::arg("momentum"), py::arg("eps"), ReleaseGil());
  module.def("merge_moments", &norm::merge_moments, ReleaseGil(),
             "[R, 3, C] -> [3, C]: count, mean, squared deviations.");
  module.def("sum_as_tree", &norm::sum_as_tree, ReleaseGil(),
             "[R, ...] -> [...], added in the order of the binary tree.");
  module.def(
      "move_running_statistics",
      [](const MaybeTensor& mean, const MaybeTensor& variance, const at::Tensor& moments, double momentum) {
        norm::move_running_statistics(or_undefined(mean), or_undefined(variance), moments, momentum);
      },
      ReleaseGil());
}

}  // namespace

void bind_features(py::module_& module) {
  bind_layers(module);
  bind_rows(module);
  bind_norms(module);
}

}  // namespace lockstep::python
