# SPDX-License-Identifier: Apache-2.0
# cmake --install: the layers, their headers, and a package config for find_package(lockstep).

if(NOT LOCKSTEP_INSTALL)
  return()
endif()
include(CMakePackageConfigHelpers)

set(_lockstep_config_folder "${CMAKE_INSTALL_LIBDIR}/cmake/lockstep")
get_property(_lockstep_layers GLOBAL PROPERTY LOCKSTEP_LAYERS)

# The packages that the layers link to, from the link lines themselves: MPI::MPI_CXX comes from package MPI.
set(LOCKSTEP_PACKAGES "")
foreach(layer ${_lockstep_layers})
  get_target_property(libraries ${layer} LINK_LIBRARIES)
  list(FILTER libraries INCLUDE REGEX "^[A-Za-z0-9_]+::")
  list(TRANSFORM libraries REPLACE "::.*" "")
  list(APPEND LOCKSTEP_PACKAGES ${libraries})
endforeach()
list(REMOVE_DUPLICATES LOCKSTEP_PACKAGES)
list(REMOVE_ITEM LOCKSTEP_PACKAGES lockstep)
list(TRANSFORM LOCKSTEP_PACKAGES REPLACE "^CUDA$" "CUDAToolkit")

install(
  TARGETS ${_lockstep_layers}
  EXPORT lockstepTargets
  ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(
  EXPORT lockstepTargets
  NAMESPACE lockstep::
  DESTINATION "${_lockstep_config_folder}")
# Headers in detail/ come along, since public ones include some of them. They are promised to nobody.
install(
  DIRECTORY "${PROJECT_SOURCE_DIR}/include/lockstep"
  DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
  FILES_MATCHING
  PATTERN "*.h"
  PATTERN "*.cuh")

if(TARGET lockstep)
  if(LOCKSTEP_TORCH_AT)
    set_target_properties(lockstep PROPERTIES INSTALL_RPATH "${LOCKSTEP_TORCH_AT}/lib")
  else()
    set_target_properties(lockstep PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON) # it finds libtorch where it was built
  endif()
  install(TARGETS lockstep RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT program)
endif()

configure_package_config_file(
  "${CMAKE_CURRENT_LIST_DIR}/lockstepConfig.cmake.in" "${PROJECT_BINARY_DIR}/lockstepConfig.cmake"
  INSTALL_DESTINATION "${_lockstep_config_folder}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/lockstepConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/lockstepConfig.cmake" "${PROJECT_BINARY_DIR}/lockstepConfigVersion.cmake"
              "${CMAKE_CURRENT_LIST_DIR}/LockstepTorch.cmake" DESTINATION "${_lockstep_config_folder}")
include(LockstepPackages)
