# SPDX-License-Identifier: Apache-2.0
# Builds PROJECT in a folder of its own, against the installed package or the source tree, and runs PROGRAM, which
# prints one line, EXPECTED (a regular expression).

function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

set(folder "${LOCKSTEP_BUILD}/tests/package/${PROGRAM}")
# Without optimisation as in a debug build, but not -g, which doubles the time that torch's headers take.
set(arguments -G Ninja -D CMAKE_BUILD_TYPE=Debug -D CMAKE_CXX_FLAGS_DEBUG=-O0 -D CMAKE_CXX_COMPILER=${COMPILER} -D
              CMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER})

if(WAY STREQUAL "find_package")
  # Started from nothing, so that a header that is no longer installed is missed.
  file(REMOVE_RECURSE "${folder}")
  run(${CMAKE_COMMAND} --install "${LOCKSTEP_BUILD}" --prefix "${folder}/prefix")
  list(APPEND arguments -D CMAKE_PREFIX_PATH=${folder}/prefix)
else()
  # Kept from run to run: what did not change is not compiled again.
  list(APPEND arguments -D LOCKSTEP_SOURCE=${LOCKSTEP_SOURCE} -D LOCKSTEP_TORCH=${LOCKSTEP_TORCH} -D LOCKSTEP_CUDA=OFF
       -D LOCKSTEP_MPI=OFF -D LOCKSTEP_TOGETHER=12)
endif()

run(${CMAKE_COMMAND} -S "${PROJECT}" -B "${folder}/build" ${arguments})
run(${CMAKE_COMMAND} --build "${folder}/build" --target ${PROGRAM})
execute_process(COMMAND "${folder}/build/${PROGRAM}" OUTPUT_VARIABLE output COMMAND_ERROR_IS_FATAL ANY)
if(NOT output MATCHES "^${EXPECTED}\n$")
  message(FATAL_ERROR "${PROGRAM}: printed '${output}', expected '${EXPECTED}'")
endif()

# With another libtorch than its own the package is not found, and says why.
if(WAY STREQUAL "find_package")
  set(other "${folder}/other_torch")
  file(WRITE "${other}/lib/libtorch_cpu.so" "")
  file(WRITE "${other}/include/torch/headeronly/version.h"
       "#define TORCH_VERSION_MAJOR 2\n#define TORCH_VERSION_MINOR 10\n#define TORCH_VERSION_PATCH 9\n")
  execute_process(COMMAND ${CMAKE_COMMAND} -S "${PROJECT}" -B "${folder}/other_build" ${arguments} -D
                          LOCKSTEP_TORCH=${other} RESULT_VARIABLE status OUTPUT_QUIET ERROR_VARIABLE output)
  string(REGEX REPLACE "[ \n]+" " " output "${output}")
  if(status EQUAL 0 OR NOT output MATCHES "lockstep was built with libtorch [0-9.]+, but '[^']*' is 2.10.9")
    message(FATAL_ERROR "found with another libtorch, the package said '${output}'")
  endif()
endif()
