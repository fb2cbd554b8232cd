// SPDX-License-Identifier: Apache-2.0
#include "sparse/registration.h"

#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include "lockstep/norm/detail/row_kernels.h"
#include "sparse/ops/kernels.h"

namespace lockstep::sparse {
namespace {

/// Autocast runs the products of matrices in the lower type; sums of rows keep the type of their input.
template <c10::DeviceType kDevice>
struct Autocast {
  static constexpr c10::DispatchKey kKey =
      kDevice == at::kCPU ? c10::DispatchKey::AutocastCPU : c10::DispatchKey::AutocastCUDA;

  static at::Tensor lower(const at::Tensor& tensor) {
    return at::autocast::cached_cast(at::autocast::get_autocast_dtype(kDevice), tensor, kDevice);
  }
  static at::Tensor convolution(const at::Tensor& x, const at::Tensor& weight, const KernelMapPtr& map, bool transposed,
                                int64_t groups) {
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(kKey);
    return sparse::convolution(lower(x), lower(weight), map, transposed, groups);
  }
  static at::Tensor channelwise(const at::Tensor& x, const at::Tensor& weight, const KernelMapPtr& map) {
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(kKey);
    return sparse::channelwise(lower(x), lower(weight), map);
  }
  static void register_operations(torch::Library& library) {
    library.impl("convolution", &Autocast::convolution);
    library.impl("channelwise", &Autocast::channelwise);
  }
};

}  // namespace

c10::OperatorHandle find_operation(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow((std::string("lockstep_sparse::") + name).c_str(), "");
}

}  // namespace lockstep::sparse

#define KERNEL_MAP "__torch__.torch.classes.lockstep_sparse.KernelMap map"
#define ROW_MAP "__torch__.torch.classes.lockstep_sparse.RowMap map"

TORCH_LIBRARY(lockstep_sparse, library) {
  library.class_<lockstep::sparse::KernelMap>("KernelMap");
  library.class_<lockstep::sparse::RowMap>("RowMap");
  library.def("convolution(Tensor x, Tensor weight, " KERNEL_MAP ", bool transposed, int groups) -> Tensor");
  library.def("convolution_weight(Tensor x, Tensor g, " KERNEL_MAP ", int groups) -> Tensor");
  library.def("channelwise(Tensor x, Tensor weight, " KERNEL_MAP ") -> Tensor");
  library.def("channelwise_weight(Tensor x, Tensor g, " KERNEL_MAP ") -> Tensor");
  library.def("row_sum(Tensor x, " ROW_MAP ", Tensor? weights) -> Tensor");
  library.def("row_dot(Tensor g, Tensor x, " ROW_MAP ") -> Tensor");
  library.def("row_pick(Tensor x, " ROW_MAP ", Tensor chosen) -> Tensor");
  library.def("row_unpick(Tensor g, " ROW_MAP ", Tensor chosen) -> Tensor");
  library.def("row_argmax(Tensor x, " ROW_MAP ") -> Tensor");
  library.def("column_sum(Tensor x) -> Tensor");
  library.def("column_moments(Tensor x) -> Tensor");
  library.def("normalize(Tensor x, Tensor mean, Tensor inverse_deviation, Tensor weight, Tensor bias) -> Tensor");
  library.def("normalize_sums(Tensor g, Tensor x, Tensor mean, Tensor inverse_deviation) -> Tensor");
  library.def(
      "normalize_gradient(Tensor g, Tensor x, Tensor mean, Tensor inverse_deviation, Tensor scale, Tensor means) -> "
      "Tensor");
}

#define FOR_EACH_OPERATION(apply) \
  apply(convolution);             \
  apply(convolution_weight);      \
  apply(channelwise);             \
  apply(channelwise_weight);      \
  apply(row_sum);                 \
  apply(row_dot);                 \
  apply(row_pick);                \
  apply(row_unpick);              \
  apply(column_sum)

TORCH_LIBRARY_IMPL(lockstep_sparse, CPU, library) {
#define ON_CPU(name) library.impl(#name, &lockstep::sparse::cpu::name)
  FOR_EACH_OPERATION(ON_CPU);
  ON_CPU(row_argmax);
#define NORM_ON_CPU(name) library.impl(#name, &lockstep::norm::cpu::name)
  NORM_ON_CPU(column_moments);
  NORM_ON_CPU(normalize);
  NORM_ON_CPU(normalize_sums);
  NORM_ON_CPU(normalize_gradient);
}

TORCH_LIBRARY_IMPL(lockstep_sparse, Autograd, library) {
#define WITH_GRADIENT(name) library.impl(#name, &lockstep::sparse::autograd::name)
  FOR_EACH_OPERATION(WITH_GRADIENT);
  // A choice of entries has no gradient: what it chose has.
  library.impl("row_argmax", torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(lockstep_sparse, CUDA, library) {
  lockstep::sparse::cuda::register_operations(library);
}

TORCH_LIBRARY_IMPL(lockstep_sparse, AutocastCPU, library) {
  lockstep::sparse::Autocast<at::kCPU>::register_operations(library);
}

TORCH_LIBRARY_IMPL(lockstep_sparse, AutocastCUDA, library) {
  lockstep::sparse::Autocast<at::kCUDA>::register_operations(library);
}
