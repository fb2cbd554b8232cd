// SPDX-License-Identifier: Apache-2.0
#include "bindings.h"
#include "lockstep/base/error.h"
#include "lockstep/numerics/device.h"
#include "lockstep/numerics/pinned.h"
#include "lockstep/numerics/tree.h"

namespace lockstep::python {
namespace {

/// A caller's mistake is lockstep.Error, which is a ValueError and a RuntimeError: code written for other engines
/// catches one or the other.
void bind_error(pybind11::module_& module) {
  const pybind11::tuple bases =
      pybind11::make_tuple(pybind11::reinterpret_borrow<pybind11::object>(PyExc_ValueError),
                           pybind11::reinterpret_borrow<pybind11::object>(PyExc_RuntimeError));
  pybind11::register_exception<Error>(module, "Error", bases).attr("__module__") = "lockstep";
}

void bind_core(pybind11::module_& module) {
  module.def("pin_numerics", &pin_numerics, ReleaseGil());
  module.def(
      "block_nodes",
      [](int64_t leaves, int64_t begin, int64_t end) {
        std::vector<std::pair<int64_t, int64_t>> nodes;
        for (const Interval node : block_nodes(leaves, {begin, end})) nodes.emplace_back(node.begin, node.end);
        return nodes;
      },
      pybind11::arg("leaves"), pybind11::arg("begin"), pybind11::arg("end"),
      "The maximal nodes of the canonical tree that make up a block of replicas, from left to right.");
}

}  // namespace
}  // namespace lockstep::python

PYBIND11_MODULE(_C, module) {
  module.doc() = "The C++ engine of Lockstep. Use the packages lockstep and MinkowskiEngine instead.";
  lockstep::python::bind_error(module);
  lockstep::python::bind_core(module);
  lockstep::python::bind_coordinates(module);
  lockstep::python::bind_features(module);
  lockstep::python::bind_data(module);
  module.attr("has_cuda") = lockstep::built_with_cuda();
}
