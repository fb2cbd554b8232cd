# SPDX-License-Identifier: Apache-2.0
# As a user gets the packages: an sdist, a wheel made of the unpacked sdist, installed in FOLDER and imported from
# elsewhere. Nothing is fetched. Sources lie at the same place each time, so that ccache finds what it has seen.

function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

file(REMOVE_RECURSE "${FOLDER}")
file(MAKE_DIRECTORY "${FOLDER}")
run("${CMAKE_COMMAND}" -E chdir "${SOURCE}" "${PYTHON}" -B -c
    "from build_backend import build_sdist\nbuild_sdist('${FOLDER}')")
file(GLOB sdist "${FOLDER}/lockstep-*.tar.gz")
file(ARCHIVE_EXTRACT INPUT "${sdist}" DESTINATION "${FOLDER}")
string(REGEX REPLACE "\\.tar\\.gz$" "" unpacked "${sdist}")
set(offline --quiet --disable-pip-version-check --no-deps --no-index)
# The long option: the pip of Debian 12 has no -C.
set(settings --config-settings cmake.define.LOCKSTEP_CUDA=OFF)
# What is proven is that all is there and fits together; -O0 compiles it in two thirds of the time.
list(APPEND settings --config-settings cmake.build-type=Debug --config-settings cmake.define.CMAKE_CXX_FLAGS_DEBUG=-O0)
run("${PYTHON}" -m pip wheel ${offline} --no-build-isolation ${settings} --wheel-dir "${FOLDER}" "${unpacked}")
file(GLOB wheel "${FOLDER}/lockstep-*.whl")
run("${PYTHON}" -m pip install ${offline} --target "${FOLDER}/site" "${wheel}")

set(program
    "import lockstep, MinkowskiEngine as ME, torch"
    "c, f = ME.utils.sparse_collate([torch.randint(0, 9, (50, 3))], [torch.rand(50, 4)])"
    "y = ME.MinkowskiConvolution(4, 8, kernel_size=3, dimension=3)(ME.SparseTensor(f, c))"
    "print(ME.__file__, lockstep.__file__, y.shape[1])")
string(REPLACE ";" "\n" program "${program}")
execute_process(
  COMMAND "${CMAKE_COMMAND}" -E env "PYTHONPATH=${FOLDER}/site" "${PYTHON}" -c "${program}"
  WORKING_DIRECTORY "${FOLDER}"
  OUTPUT_VARIABLE output COMMAND_ERROR_IS_FATAL ANY)
if(NOT output MATCHES "/site/MinkowskiEngine/__init__.py [^ ]*/site/lockstep/__init__.py 8\n$")
  message(FATAL_ERROR "the installed packages printed '${output}', expected their files in ${FOLDER}/site, and 8")
endif()
foreach(marker lockstep/py.typed MinkowskiEngine/py.typed lockstep/_C.pyi)
  if(NOT EXISTS "${FOLDER}/site/${marker}")
    message(FATAL_ERROR "the wheel has no ${marker}, expected it beside the modules")
  endif()
endforeach()
