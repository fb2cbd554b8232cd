// SPDX-License-Identifier: Apache-2.0
// Orders of examples, and metrics that merge.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

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

void bind_orders(py::module_& module) {
  using data::Order;
  py::class_<Order>(module, "Order", "The global sequence of example ids: a pure function of (epoch, position).")
      .def_static("shuffled", &Order::shuffled, py::arg("examples"), py::arg("seed"),
                  "Each example once an epoch, in another order every time.")
      .def_static("sequential", &Order::sequential, py::arg("examples"), "0, 1, 2, ...")
      .def_static("weighted", &Order::weighted, py::arg("weights"), py::arg("seed"), py::arg("count") = 0, ReleaseGil(),
                  "Draws with replacement, an example's probability being proportional to its weight.")
      .def_static("grouped", &Order::grouped, py::arg("classes"), py::arg("seed"), py::arg("run") = 0, ReleaseGil(),
                  "Each example once, in runs of examples of one class.")
      .def_static("of", py::overload_cast<int64_t, std::vector<int64_t>>(&Order::of), py::arg("examples"),
                  py::arg("ids"), "These ids, in every epoch.")
      .def("__len__", &Order::size)
      .def_property_readonly("examples", &Order::examples)
      .def("ids", &ids_of, py::arg("epoch"), py::arg("begin"), py::arg("end"), ReleaseGil(), "int64 [end - begin].")
      .def("exactly_once", &Order::exactly_once, py::arg("epoch") = 0, ReleaseGil())
      .def("__repr__", [](const Order& self) { return "Order(" + self.describe() + ")"; });
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
      .def_property_readonly("weight", &metrics::Mean::weight);
  py::class_<metrics::TopKAccuracy, metrics::Metric>(module, "TopKAccuracy")
      .def(py::init<int64_t, int64_t>(), py::arg("k"), py::arg("ignore") = -100)
      .def("add", &metrics::TopKAccuracy::add, py::arg("scores"), py::arg("targets"), ReleaseGil())
      .def_property_readonly("right", &metrics::TopKAccuracy::right)
      .def_property_readonly("examples", &metrics::TopKAccuracy::examples);
  py::class_<metrics::Accuracy, metrics::TopKAccuracy>(module, "Accuracy").def(py::init<>());
  py::class_<metrics::ConfusionMatrix, metrics::Metric>(module, "ConfusionMatrix")
      .def(py::init<int64_t, int64_t>(), py::arg("classes"), py::arg("ignore") = -100)
      .def("add", &metrics::ConfusionMatrix::add, py::arg("predictions"), py::arg("targets"), ReleaseGil())
      .def_property_readonly("matrix", &metrics::ConfusionMatrix::matrix);
  py::class_<metrics::MeanIoU, metrics::ConfusionMatrix>(module, "MeanIoU")
      .def(py::init<int64_t, int64_t>(), py::arg("classes"), py::arg("ignore") = -100)
      .def_property_readonly("of_classes", &metrics::MeanIoU::of_classes);
  py::class_<metrics::FeatureMoments, metrics::Metric>(module, "FeatureMoments")
      .def(py::init<int64_t>(), py::arg("features"))
      .def("add", &metrics::FeatureMoments::add, py::arg("features"), ReleaseGil())
      .def_property_readonly("count", &metrics::FeatureMoments::count)
      .def_property_readonly("mean", &metrics::FeatureMoments::mean)
      .def_property_readonly("covariance", &metrics::FeatureMoments::covariance);
  module.def("frechet_distance", &metrics::frechet_distance, py::arg("a"), py::arg("b"), ReleaseGil());
}

}  // namespace

void bind_data(py::module_& module) {
  bind_orders(module);
  bind_metrics(module);
}

}  // namespace lockstep::python
