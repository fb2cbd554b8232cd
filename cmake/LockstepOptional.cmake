# SPDX-License-Identifier: Apache-2.0
# What is optional: CUDA (a toolkit with nvcc), MPI, Gloo's headers. Sets LOCKSTEP_HAS_<FEATURE>.

include(CheckLanguage)

# CUDA: the toolkit compiles our kernels; the CUDA half of libtorch runs everything else.
set(LOCKSTEP_HAS_CUDA OFF)
if(LOCKSTEP_CUDA)
  if(EXISTS "${LOCKSTEP_TORCH}/lib/libtorch_cuda.so")
    check_language(CUDA)
  endif()
  if(CMAKE_CUDA_COMPILER)
    if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
      set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 100)
    endif()
    enable_language(CUDA)
    lockstep_prepare_cuda_toolkit()
    find_package(CUDAToolkit REQUIRED)
    lockstep_import_torch_cuda()
    # NCCL's header comes with the toolkit or with torch's own dependencies.
    find_path(LOCKSTEP_NCCL_INCLUDE nccl.h
              HINTS ${CUDAToolkit_INCLUDE_DIRS} "${LOCKSTEP_TORCH}/../nvidia/nccl/include")
    set(LOCKSTEP_CUDA_HEADERS ${CUDAToolkit_INCLUDE_DIRS})
    if(LOCKSTEP_NCCL_INCLUDE)
      list(APPEND LOCKSTEP_CUDA_HEADERS "${LOCKSTEP_NCCL_INCLUDE}")
    endif()
    list(REMOVE_DUPLICATES LOCKSTEP_CUDA_HEADERS)
    set(LOCKSTEP_HAS_CUDA ON)
  elseif(LOCKSTEP_CUDA STREQUAL "ON")
    message(FATAL_ERROR "lockstep: LOCKSTEP_CUDA=ON, but no nvcc or no CUDA build of libtorch was found")
  endif()
endif()

set(LOCKSTEP_HAS_MPI OFF)
if(LOCKSTEP_MPI)
  set(MPI_CXX_SKIP_MPICXX ON)
  find_package(MPI QUIET COMPONENTS CXX)
  if(MPI_CXX_FOUND)
    set(LOCKSTEP_HAS_MPI ON)
  elseif(LOCKSTEP_MPI STREQUAL "ON")
    message(FATAL_ERROR "lockstep: LOCKSTEP_MPI=ON, but no MPI was found (Debian: libopenmpi-dev)")
  endif()
endif()

# Gloo is inside libtorch_cpu; its headers are not in the wheel and come from the system.
set(LOCKSTEP_HAS_GLOO OFF)
if(LOCKSTEP_GLOO)
  find_path(LOCKSTEP_GLOO_INCLUDE gloo/transport/device.h)
  if(LOCKSTEP_GLOO_INCLUDE)
    set(LOCKSTEP_HAS_GLOO ON)
  elseif(LOCKSTEP_GLOO STREQUAL "ON")
    message(FATAL_ERROR "lockstep: LOCKSTEP_GLOO=ON, but Gloo's headers were not found (Debian: libgloo-dev)")
  endif()
endif()

message(STATUS "lockstep: libtorch ${LOCKSTEP_TORCH_VERSION} at ${LOCKSTEP_TORCH}")
message(STATUS "lockstep: CUDA ${LOCKSTEP_HAS_CUDA}, MPI ${LOCKSTEP_HAS_MPI}, Gloo ${LOCKSTEP_HAS_GLOO}")
