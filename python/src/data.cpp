// SPDX-License-Identifier: Apache-2.0
// Orders of examples, and metrics that merge.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "bindings.h"
#include "lockstep/base/error.h"
#include "lockstep/data/order.h"
#include "lockstep/metrics/accuracy.h"
#include "lockstep/metrics/confusion_matrix.h"
#include "lockstep/metrics/frechet.h"
#include "lockstep/metrics/mean.h"
#include "lockstep/metrics/metric.h"

namespace py = pybind11;

namespace lockstep::python {
namespace {

at::Tensor ids_of(const data::Order& order, int64_t epoch, int64_t begin, int64_t end) {
  require(begin >= 0 && begin <= end && end <= order.size(), "Order", "positions are ", begin, " to ", end,
          ", expected a run within 0 to ", order.size());
  at::Tensor ids = at::empty({end - begin}, at::kLong);
  order.fill(epoch, begin, {ids.mutable_data_ptr<int64_t>(), static_cast<size_t>(end - begin)});
  return ids;
}

/// An order that knows how it was made, so that it can be pickled: make() is called without the GIL.
template <class Make, class... Arguments>
py::object made(const char* name, const Make& make, const Arguments&... arguments) {
  py::object self;
  {
    auto order = [&] {
      py::gil_scoped_release release;
      return make();
    }();
    self = py::cast(std::move(order));
  }
  self.attr("_made") = py::make_tuple(name, arguments...);
  return self;
}

template <class T>
at::Tensor as_tensor(const std::vector<T>& values) {
  at::Tensor made = at::empty({static_cast<int64_t>(values.size())}, at::dtype(c10::CppTypeToScalarType<T>::value));
  std::copy(values.begin(), values.end(), made.mutable_data_ptr<T>());
  return made;
}

/// Python's make_order("shuffled", examples, seed) and the like; lists are kept as tensors.
py::tuple reduce(const py::object& self) {
  const py::tuple how = self.attr("_made");
  py::list arguments;
  for (size_t i = 0; i < how.size(); ++i)
    arguments.append(py::hasattr(how[i], "tolist") ? how[i].attr("tolist")() : py::object(how[i]));
  return py::make_tuple(py::module_::import("lockstep.sampler").attr("make_order"), py::tuple(arguments));
}

void bind_orders(py::module_& module) {
  using data::Order;
  py::class_<Order>(module, "Order", py::dynamic_attr(),
                    "The global sequence of example ids: a pure function of (epoch, position).")
      .def_static(
          "shuffled",
          [](int64_t examples, uint64_t seed) {
            return made(
                "shuffled", [&] { return Order::shuffled(examples, seed); }, examples, seed);
          },
          py::arg("examples"), py::arg("seed"), "Each example once an epoch, in another order every time.")
      .def_static(
          "sequential",
          [](int64_t examples) {
            return made(
                "sequential", [&] { return Order::sequential(examples); }, examples);
          },
          py::arg("examples"), "0, 1, 2, ...")
      .def_static(
          "weighted",
          [](const std::vector<double>& weights, uint64_t seed, int64_t count) {
            return made(
                "weighted", [&] { return Order::weighted(weights, seed, count); }, as_tensor(weights), seed, count);
          },
          py::arg("weights"), py::arg("seed"), py::arg("count") = 0,
          "Draws with replacement, an example's probability being proportional to its weight.")
      .def_static(
          "grouped",
          [](const std::vector<int64_t>& classes, uint64_t seed, int64_t run) {
            return made(
                "grouped", [&] { return Order::grouped(classes, seed, run); }, as_tensor(classes), seed, run);
          },
          py::arg("classes"), py::arg("seed"), py::arg("run") = 0,
          "Each example once, in runs of examples of one class.")
      .def_static(
          "of",
          [](int64_t examples, const std::vector<int64_t>& ids) {
            return made(
                "of", [&] { return Order::of(examples, ids); }, examples, as_tensor(ids));
          },
          py::arg("examples"), py::arg("ids"), "These ids, in every epoch.")
      .def("__reduce__", &reduce)
      .def("__len__", &Order::size)
      .def_property_readonly("examples", &Order::examples)
      .def("ids", &ids_of, py::arg("epoch"), py::arg("begin"), py::arg("end"), ReleaseGil(), "int64 [end - begin].")
      .def("exactly_once", &Order::exactly_once, py::arg("epoch") = 0, ReleaseGil())
      .def("__repr__", [](const Order& self) { return "Order(" + self.describe() + ")"; });
}

/// How a metric is pickled: the numbers that its constructor takes, and its state.
template <class Metric, class... Getters>
auto pickled(Getters... getters) {
  return py::pickle([=](const Metric& self) { return py::make_tuple((self.*getters)()..., self.state()); },
                    [](const py::tuple& state) {
                      return [&]<size_t... I>(std::index_sequence<I...>) {
                        Metric metric(state[I].template cast<int64_t>()...);
                        metric.merge(state[sizeof...(I)].template cast<at::Tensor>());
                        return metric;
                      }
                      (std::index_sequence_for<Getters...>());
                    });
}

void bind_metrics(py::module_& module) {
  py::class_<metrics::Metric>(module, "Metric", "A figure over examples that replicas see parts of.")
      .def("state", &metrics::Metric::state, ReleaseGil(), "float64 [n]: all that it has seen.")
      .def("merge", &metrics::Metric::merge, py::arg("states"), ReleaseGil(),
           "Becomes what states [R, n] give together.")
      .def("clear", &metrics::Metric::clear)
      .def("value", &metrics::Metric::value, ReleaseGil(), "The figure; NaN where nothing was seen.");
  py::class_<metrics::Mean, metrics::Metric>(module, "Mean")
      .def(py::init<>())
      .def("add", &metrics::Mean::add, py::arg("value"), py::arg("weight") = 1.0)
      .def_property_readonly("weight", &metrics::Mean::weight)
      .def(pickled<metrics::Mean>());
  py::class_<metrics::TopKAccuracy, metrics::Metric>(module, "TopKAccuracy")
      .def(py::init<int64_t, int64_t>(), py::arg("k"), py::arg("ignore") = -100)
      .def("add", &metrics::TopKAccuracy::add, py::arg("scores"), py::arg("targets"), ReleaseGil())
      .def_property_readonly("right", &metrics::TopKAccuracy::right)
      .def_property_readonly("examples", &metrics::TopKAccuracy::examples)
      .def(pickled<metrics::TopKAccuracy>(&metrics::TopKAccuracy::k, &metrics::TopKAccuracy::ignore));
  py::class_<metrics::Accuracy, metrics::TopKAccuracy>(module, "Accuracy")
      .def(py::init<>())
      .def(pickled<metrics::Accuracy>());
  py::class_<metrics::ConfusionMatrix, metrics::Metric>(module, "ConfusionMatrix")
      .def(py::init<int64_t, int64_t>(), py::arg("classes"), py::arg("ignore") = -100)
      .def("add", &metrics::ConfusionMatrix::add, py::arg("predictions"), py::arg("targets"), ReleaseGil())
      .def_property_readonly("matrix", &metrics::ConfusionMatrix::matrix)
      .def(pickled<metrics::ConfusionMatrix>(&metrics::ConfusionMatrix::classes, &metrics::ConfusionMatrix::ignore));
  py::class_<metrics::MeanIoU, metrics::ConfusionMatrix>(module, "MeanIoU")
      .def(py::init<int64_t, int64_t>(), py::arg("classes"), py::arg("ignore") = -100)
      .def_property_readonly("of_classes", &metrics::MeanIoU::of_classes)
      .def(pickled<metrics::MeanIoU>(&metrics::MeanIoU::classes, &metrics::MeanIoU::ignore));
  py::class_<metrics::FeatureMoments, metrics::Metric>(module, "FeatureMoments")
      .def(py::init<int64_t>(), py::arg("features"))
      .def("add", &metrics::FeatureMoments::add, py::arg("features"), ReleaseGil())
      .def_property_readonly("count", &metrics::FeatureMoments::count)
      .def_property_readonly("mean", &metrics::FeatureMoments::mean)
      .def_property_readonly("covariance", &metrics::FeatureMoments::covariance)
      .def(pickled<metrics::FeatureMoments>(&metrics::FeatureMoments::features));
  module.def("frechet_distance", &metrics::frechet_distance, py::arg("a"), py::arg("b"), ReleaseGil());
}

}  // namespace

void bind_data(py::module_& module) {
  bind_orders(module);
  bind_metrics(module);
}

}  // namespace lockstep::python
