# SPDX-License-Identifier: Apache-2.0
# As a user gets the packages: an sdist, a wheel made of the unpacked sdist and labelled as ./dev wheel does it,
# installed into a fresh environment and used there with no compiler on the PATH. Nothing is fetched. Sources lie at the
# same place each time, so that ccache finds what it has seen.

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
run("${PYTHON}" -m pip wheel ${offline} --no-build-isolation ${settings} --wheel-dir "${FOLDER}/built" "${unpacked}")
file(GLOB wheel "${FOLDER}/built/lockstep-*.whl")
run("${PYTHON}" -B "${SOURCE}/../tools/wheel.py" "${wheel}" "${FOLDER}")
file(GLOB wheel "${FOLDER}/lockstep-*.whl")
if(NOT wheel MATCHES "/lockstep-[0-9.]+[+]torch[0-9.]+-cp[^/]*-manylinux_[0-9]+_[0-9]+_[^/]*[.]whl$")
  message(FATAL_ERROR "the wheel is '${wheel}', expected the version of its torch and a manylinux tag in its name")
endif()

# The environment sees the torch that is installed beside this Python, and whatever torch needs.
run("${PYTHON}" -m venv --without-pip "${FOLDER}/venv")
set(venv_python "${FOLDER}/venv/bin/python")
foreach(python IN ITEMS "${PYTHON}" "${venv_python}")
  execute_process(COMMAND "${python}" -c "import sysconfig; print(sysconfig.get_path('platlib'))" OUTPUT_VARIABLE path
                  OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  list(APPEND paths "${path}")
endforeach()
list(GET paths 0 theirs)
list(GET paths 1 site)
run("${PYTHON}" -m pip install ${offline} --target "${site}" "${wheel}")
file(WRITE "${site}/torch_of_the_build.pth" "${theirs}\n")
file(GLOB metadata "${site}/lockstep-*.dist-info/METADATA")
file(READ "${metadata}" metadata)
if(NOT metadata MATCHES "\nRequires-Dist: torch==[0-9.]+\n")
  message(FATAL_ERROR "the wheel says '${metadata}', expected that it requires one version of torch")
endif()

set(program
    "import lockstep, MinkowskiEngine as ME, torch"
    "c, f = ME.utils.sparse_collate([torch.randint(0, 9, (50, 3))], [torch.rand(50, 4)])"
    "y = ME.MinkowskiConvolution(4, 8, kernel_size=3, dimension=3)(ME.SparseTensor(f, c))"
    "print(ME.__file__, lockstep.__file__, y.shape[1])"
    "net = ME.MinkowskiConvolution(4, 8, kernel_size=3, dimension=3)"
    "optimizer = torch.optim.SGD(net.parameters(), lr=0.05)"
    "losses = []"
    "for step in range(20):"
    "    loss = (net(ME.SparseTensor(f, c)).F - 1).square().mean()"
    "    optimizer.zero_grad(), loss.backward(), optimizer.step()"
    "    losses.append(loss.item())"
    "assert losses[-1] < 0.9 * losses[0], losses"
    "import shutil"
    "assert not any(map(shutil.which, ('c++', 'g++', 'gcc', 'cc', 'clang++', 'nvcc'))), 'a compiler is on the PATH'")
string(REPLACE ";" "\n" program "${program}")
execute_process(
  COMMAND "${CMAKE_COMMAND}" -E env --unset=PYTHONPATH PATH=/nowhere "${venv_python}" -c "${program}"
  WORKING_DIRECTORY "${FOLDER}"
  OUTPUT_VARIABLE output COMMAND_ERROR_IS_FATAL ANY)
if(NOT output MATCHES "/venv/[^ ]*/MinkowskiEngine/__init__.py [^ ]*/venv/[^ ]*/lockstep/__init__.py 8\n$")
  message(FATAL_ERROR "the installed packages printed '${output}', expected their files in ${FOLDER}/venv, and 8")
endif()
foreach(marker lockstep/py.typed MinkowskiEngine/py.typed lockstep/_C.pyi)
  if(NOT EXISTS "${site}/${marker}")
    message(FATAL_ERROR "the wheel has no ${marker}, expected it beside the modules")
  endif()
endforeach()
