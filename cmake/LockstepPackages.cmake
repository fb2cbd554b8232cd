# SPDX-License-Identifier: Apache-2.0
# What the package managers of a system want besides: lockstep.pc, pages of the manual, and completion.

# pkg-config's file. The layers are static, so all that they stand on is on the line.
set(_lockstep_pc_layers "")
foreach(layer ${_lockstep_layers})
  string(APPEND _lockstep_pc_layers " -l${layer}")
endforeach()
set(_lockstep_pc_libraries "")
if(LOCKSTEP_HAS_MPI)
  list(JOIN MPI_CXX_LIBRARIES " " _lockstep_pc_libraries)
endif()
set(_lockstep_pc_torch "-ltorch_cpu -lc10")
if(LOCKSTEP_HAS_CUDA)
  set(_lockstep_pc_torch "-ltorch_cuda -lc10_cuda ${_lockstep_pc_torch} ${CUDA_CUDART}")
endif()
get_target_property(_lockstep_openmp lockstep::openmp TYPE)
if(_lockstep_openmp STREQUAL "INTERFACE_LIBRARY")
  string(APPEND _lockstep_pc_torch " -lgomp")
else()
  get_target_property(_lockstep_openmp lockstep::openmp IMPORTED_LOCATION)
  string(APPEND _lockstep_pc_torch " ${_lockstep_openmp}")
endif()
file(RELATIVE_PATH _lockstep_pc_prefix "/prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/prefix")
configure_file("${CMAKE_CURRENT_LIST_DIR}/lockstep.pc.in" "${PROJECT_BINARY_DIR}/lockstep.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/lockstep.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")

if(NOT TARGET lockstep)
  return()
endif()

# The program says itself what its commands and options are. It is asked when it is installed, not whenever it is
# built.
install(
  CODE "
    set(share \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}\")
    foreach(file bash-completion/completions/lockstep zsh/vendor-completions/_lockstep)
      string(REGEX REPLACE \"(-completion)?/.*\" \"\" shell \"\${file}\")
      execute_process(COMMAND \"$<TARGET_FILE:lockstep>\" completion \${shell} OUTPUT_VARIABLE words
                      COMMAND_ERROR_IS_FATAL ANY)
      message(STATUS \"Installing: \${share}/\${file}\")
      file(WRITE \"\${share}/\${file}\" \"\${words}\")
    endforeach()"
  COMPONENT program)
find_package(Python3 QUIET COMPONENTS Interpreter)
if(Python3_Interpreter_FOUND)
  install(
    CODE "
      set(manual \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_MANDIR}/man1\")
      message(STATUS \"Installing: \${manual}\")
      execute_process(COMMAND \"${Python3_EXECUTABLE}\" -B \"${PROJECT_SOURCE_DIR}/tools/manual.py\"
                              \"$<TARGET_FILE:lockstep>\" \"\${manual}\" COMMAND_ERROR_IS_FATAL ANY)"
    COMPONENT program)
else()
  message(STATUS "lockstep: no Python, so cmake --install writes no pages of the manual")
endif()

# cpack: a Debian package of the program. Libtorch is no Debian package: the machine brings it, at LOCKSTEP_TORCH_AT.
if(LOCKSTEP_TORCH_AT)
  install(FILES LICENSE DESTINATION "${CMAKE_INSTALL_DATADIR}/doc/lockstep" RENAME copyright COMPONENT program)
  set(CPACK_GENERATOR DEB)
  set(CPACK_COMPONENTS_ALL program)
  set(CPACK_DEB_COMPONENT_INSTALL ON)
  set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
  set(CPACK_STRIP_FILES ON)
  set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME lockstep)
  set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
  set(CPACK_PACKAGE_CONTACT "Lockstep's developers <lockstep@localhost>")
  set(CPACK_DEBIAN_PACKAGE_SECTION science)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS "${LOCKSTEP_TORCH}/lib")
  set(CPACK_COMPONENT_PROGRAM_DESCRIPTION
      "Trains one model on many devices, with the same bits on one or on many
 Libtorch ${LOCKSTEP_TORCH_VERSION} must lie in ${LOCKSTEP_TORCH_AT}, as PyPI's package torch has it.")
  include(CPack)
endif()
