# SPDX-License-Identifier: Apache-2.0
# Imported targets for libtorch: lockstep::torch, and lockstep::torch_cuda where the wheel holds it.
#
# Torch's own package config refuses to load a CUDA build of torch on a machine without a CUDA toolkit, and it
# sets flags for every target of a project. These targets are plain: headers, libraries, nothing else.
# LOCKSTEP_TORCH names the folder that holds lib/ and include/ (a libtorch, or site-packages/torch).

if(TARGET lockstep::torch)
  return()
endif()

if(NOT LOCKSTEP_TORCH AND DEFINED ENV{LOCKSTEP_TORCH})
  set(LOCKSTEP_TORCH "$ENV{LOCKSTEP_TORCH}")
endif()
# In the source tree: the versions that are tested, and of those that ./dev has set up the newest.
set(_lockstep_tested "")
if(EXISTS "${CMAKE_CURRENT_LIST_DIR}/torch_versions.txt")
  file(STRINGS "${CMAKE_CURRENT_LIST_DIR}/torch_versions.txt" _lockstep_tested REGEX "^[0-9]")
endif()
if(NOT LOCKSTEP_TORCH)
  foreach(version ${_lockstep_tested})
    file(GLOB _lockstep_found "${CMAKE_CURRENT_LIST_DIR}/../.venv-${version}/lib/python3*/site-packages/torch")
    if(_lockstep_found)
      set(LOCKSTEP_TORCH "${_lockstep_found}")
    endif()
  endforeach()
endif()
if(NOT EXISTS "${LOCKSTEP_TORCH}/lib/libtorch_cpu.so")
  message(FATAL_ERROR "lockstep: no libtorch in '${LOCKSTEP_TORCH}' (expected lib/libtorch_cpu.so there). "
                      "Run './dev setup', or set LOCKSTEP_TORCH to the folder of an installed libtorch.")
endif()
file(REAL_PATH "${LOCKSTEP_TORCH}" LOCKSTEP_TORCH)
set(LOCKSTEP_TORCH "${LOCKSTEP_TORCH}" CACHE PATH "Folder of libtorch: it holds lib/ and include/" FORCE)

file(STRINGS "${LOCKSTEP_TORCH}/include/torch/headeronly/version.h" _lockstep_torch_version
     REGEX "#define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
list(TRANSFORM _lockstep_torch_version REPLACE ".* ([0-9]+)$" "\\1")
list(JOIN _lockstep_torch_version "." _lockstep_torch_version)
set(LOCKSTEP_TORCH_VERSION "${_lockstep_torch_version}" CACHE INTERNAL "The version of that libtorch")
if(_lockstep_tested AND NOT LOCKSTEP_TORCH_VERSION IN_LIST _lockstep_tested)
  list(GET _lockstep_tested 0 _lockstep_oldest)
  list(JOIN _lockstep_tested ", " _lockstep_tested)
  if(LOCKSTEP_TORCH_VERSION VERSION_LESS _lockstep_oldest)
    message(FATAL_ERROR "lockstep: libtorch ${LOCKSTEP_TORCH_VERSION} in '${LOCKSTEP_TORCH}' is too old, tested are: "
                        "${_lockstep_tested}")
  endif()
  message(WARNING "lockstep: libtorch ${LOCKSTEP_TORCH_VERSION} is not tested, tested are: ${_lockstep_tested}")
endif()
get_filename_component(_lockstep_torch_python "${LOCKSTEP_TORCH}/../../../../bin/python3" ABSOLUTE)
set(LOCKSTEP_TORCH_PYTHON "${_lockstep_torch_python}" CACHE INTERNAL "The Python, if any, that has that libtorch")

function(lockstep_import_torch_library name file)
  add_library(lockstep::${name} SHARED IMPORTED GLOBAL)
  set_target_properties(lockstep::${name} PROPERTIES IMPORTED_LOCATION "${LOCKSTEP_TORCH}/lib/${file}"
                                                     IMPORTED_NO_SONAME OFF)
endfunction()

lockstep_import_torch_library(c10 libc10.so)
lockstep_import_torch_library(torch_cpu libtorch_cpu.so)
add_library(lockstep::torch INTERFACE IMPORTED GLOBAL)
target_include_directories(lockstep::torch SYSTEM INTERFACE "${LOCKSTEP_TORCH}/include"
                                                            "${LOCKSTEP_TORCH}/include/torch/csrc/api/include")
target_link_libraries(lockstep::torch INTERFACE lockstep::torch_cpu lockstep::c10)
# The OpenMP runtime that libtorch runs on: with another one a program would have two sets of threads.
file(GLOB _lockstep_gomp RELATIVE "${LOCKSTEP_TORCH}/lib" "${LOCKSTEP_TORCH}/lib/libgomp*.so*")
if(_lockstep_gomp)
  list(GET _lockstep_gomp 0 _lockstep_gomp)
  lockstep_import_torch_library(openmp ${_lockstep_gomp})
else()
  add_library(lockstep::openmp INTERFACE IMPORTED GLOBAL)
  target_link_libraries(lockstep::openmp INTERFACE gomp)
endif()
# libtorch's own dependencies (CUDA's runtime among them) are found by its rpath when the program runs.
target_link_options(lockstep::torch INTERFACE "LINKER:--allow-shlib-undefined")

# To be called before CUDAToolkit is looked for. The module of CMake 3.25, Debian 12's, sets a property of a target for
# a library that CUDA 13 has no longer; later ones look first whether there is one.
function(lockstep_prepare_cuda_toolkit)
  if(CMAKE_VERSION VERSION_LESS 3.26 AND NOT TARGET CUDA::nvToolsExt)
    add_library(CUDA::nvToolsExt INTERFACE IMPORTED)
  endif()
endfunction()

# The CUDA half, for those who have found CUDAToolkit: lockstep::torch_cuda. It brings libraries and no headers, see
# lockstep_source_headers.
function(lockstep_import_torch_cuda)
  if(TARGET lockstep::torch_cuda)
    return()
  endif()
  lockstep_import_torch_library(c10_cuda libc10_cuda.so)
  lockstep_import_torch_library(torch_cuda_library libtorch_cuda.so)
  add_library(lockstep::torch_cuda INTERFACE IMPORTED GLOBAL)
  target_link_libraries(lockstep::torch_cuda INTERFACE lockstep::torch lockstep::torch_cuda_library lockstep::c10_cuda
                                                       $<LINK_ONLY:CUDA::cudart>)
endfunction()
