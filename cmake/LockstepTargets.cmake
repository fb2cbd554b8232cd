# SPDX-License-Identifier: Apache-2.0
# How a layer, a test and a benchmark are declared. Flags are set on targets only.

set(lockstep_werror ${LOCKSTEP_WERROR})
if(LOCKSTEP_WERROR STREQUAL "AUTO")
  set(lockstep_werror OFF)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION MATCHES "^12\\.")
    set(lockstep_werror ON)
  endif()
endif()

add_library(lockstep_flags INTERFACE)
target_compile_features(lockstep_flags INTERFACE cxx_std_20)
# Without it some of torch's narrow headers include all two thousand operators.
target_compile_definitions(lockstep_flags INTERFACE AT_PER_OPERATOR_HEADERS)
target_compile_options(
  # -fPIC for programs too, so that they share the precompiled header; -fpch-preprocess lets ccache see through it.
  lockstep_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fPIC;-fpch-preprocess;-Wall;-Wextra;-Wno-unknown-pragmas>
                           $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${lockstep_werror}>>:-Werror>
                           # Which mutex guards what: see base/detail/guarded.h.
                           $<$<COMPILE_LANG_AND_ID:CXX,Clang>:-Wthread-safety;-Werror=thread-safety>
                           # Walking all of a precompiled header for what is unused costs GCC a seventh of its time.
                           $<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=ggc-min-heapsize=4194304>
                           # GCC 12 takes "text" + std::string for an overlapping or endless copy (its bug 105651).
                           $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-restrict;-Wno-stringop-overflow>)
if(LOCKSTEP_SANITIZE)
  # GCC's own manual: with a sanitizer this warning is often wrong.
  target_compile_options(lockstep_flags INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-maybe-uninitialized>)
  target_compile_options(
    lockstep_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${LOCKSTEP_SANITIZE};-fno-omit-frame-pointer;-g1>)
  target_link_options(lockstep_flags INTERFACE -fsanitize=${LOCKSTEP_SANITIZE})
endif()
if(LOCKSTEP_COVERAGE)
  target_compile_options(lockstep_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:--coverage>)
  target_link_options(lockstep_flags INTERFACE --coverage)
endif()

# Precompiled headers: one without torch, one with its tensors (18 seconds to parse), one with its modules too (42). A
# source pays for the one it reuses as well: 2 and 6 seconds, for templates that GCC instantiates anew in each, so a
# target takes the least that it needs.
foreach(name plain tensor network)
  add_library(lockstep_${name}_pch OBJECT "${CMAKE_CURRENT_LIST_DIR}/pch.cpp")
  target_link_libraries(lockstep_${name}_pch PRIVATE lockstep_flags lockstep::torch)
  target_precompile_headers(lockstep_${name}_pch PRIVATE "${CMAKE_CURRENT_LIST_DIR}/${name}_pch.h")
  set_target_properties(lockstep_${name}_pch PROPERTIES EXCLUDE_FROM_ALL ON)
endforeach()
if(NOT LOCKSTEP_PYTHON_ONLY)
  find_package(nlohmann_json REQUIRED)
  target_link_libraries(lockstep_plain_pch PRIVATE nlohmann_json::nlohmann_json)
endif()

# lockstep_reuse_pch(TARGET [plain|tensor|network])
function(lockstep_reuse_pch target)
  if(ARGC GREATER 1)
    target_precompile_headers(${target} REUSE_FROM lockstep_${ARGV1}_pch)
  else()
    target_precompile_headers(${target} REUSE_FROM lockstep_tensor_pch)
  endif()
endfunction()

# lockstep_compile_together(TARGET [AT_MOST]): several sources in one compiler run, most of whose time goes into torch's
# headers and what GCC instantiates of them for every source: many (LOCKSTEP_TOGETHER) build faster from nothing, few
# after an edit. AT_MOST is for the target that comes last, whose runs have nothing else beside them. What is local to a
# source has a name of its own among its neighbours. Sources with flags of their own are compiled apart. clang-tidy,
# whose build has no precompiled headers, reads each source by itself.
function(lockstep_compile_together target)
  if(NOT CMAKE_DISABLE_PRECOMPILE_HEADERS)
    set(together ${LOCKSTEP_TOGETHER})
    if(ARGC GREATER 1 AND together GREATER ARGV1)
      set(together ${ARGV1})
    endif()
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${together})
    # GCC takes a source that another one includes for a header.
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
  endif()
endfunction()

# lockstep_optimise(TARGET LEVEL): -O<LEVEL> instead of the preset's, which is for what computes. Sanitizers' presets
# have no more than -O0, which clang compiles in half of the time of -O1.
function(lockstep_optimise target level)
  if(NOT LOCKSTEP_SANITIZE)
    target_compile_options(${target} PRIVATE $<$<NOT:$<CONFIG:Debug>>:-O${level}>)
  endif()
endfunction()

# lockstep_thin_program(TARGET): a program whose time goes into the library. -Og compiles it in three quarters of the
# time of -O3; GCC then sees uninitialised memory in any std::optional.
function(lockstep_thin_program target)
  lockstep_optimise(${target} g)
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
endfunction()

# lockstep_layer(NAME numerics SOURCES ... USES ... [PCH network] [OPTIMISE 1]): a library lockstep::NAME.
# USES names the layers (and outside libraries) that it stands on: the link line is the dependency diagram.
# OPTIMISE 1 is for layers that only tell others what to do: a third of their time to build goes into making that fast.
function(lockstep_layer)
  cmake_parse_arguments(ARG "" "NAME;PCH;OPTIMISE" "SOURCES;USES;PRIVATE_USES" ${ARGN})
  set(target lockstep_${ARG_NAME})
  add_library(${target} STATIC ${ARG_SOURCES})
  add_library(lockstep::${ARG_NAME} ALIAS ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${ARG_NAME})
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                                              $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}/src")
  target_compile_features(${target} PUBLIC cxx_std_20)
  # CMake 3.25 does not know which standards nvcc 13 has.
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20;-Xcompiler=-fPIC>)
  target_link_libraries(${target} PUBLIC lockstep::torch ${ARG_USES})
  target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:lockstep_flags> ${ARG_PRIVATE_USES})
  if(ARG_OPTIMISE)
    lockstep_optimise(${target} ${ARG_OPTIMISE})
  endif()
  lockstep_reuse_pch(${target} ${ARG_PCH})
  lockstep_compile_together(${target})
  set_property(GLOBAL APPEND PROPERTY LOCKSTEP_LAYERS ${target})
endfunction()

# lockstep_part(TARGET PART SOURCES a.cpp ... [PCH network] [OPTIMISE 1] [HEADERS folders...]): sources of a layer that
# see more than its others, modules or all of torch's operators (PCH network) or the headers of an optional package, or
# less (PCH plain). On the layer
# itself those would be on every command line, and a build with the package could share no object with one without
# (ccache).
function(lockstep_part target part)
  cmake_parse_arguments(ARG "" "PCH;OPTIMISE" "SOURCES;HEADERS" ${ARGN})
  set(objects ${target}_${part})
  add_library(${objects} OBJECT ${ARG_SOURCES})
  target_link_libraries(${objects} PRIVATE lockstep_flags $<TARGET_PROPERTY:${target},LINK_LIBRARIES>)
  target_include_directories(${objects} PRIVATE "${PROJECT_SOURCE_DIR}/include" "${PROJECT_SOURCE_DIR}/src")
  target_include_directories(${objects} SYSTEM PRIVATE ${ARG_HEADERS})
  if(ARG_OPTIMISE)
    lockstep_optimise(${objects} ${ARG_OPTIMISE})
  endif()
  lockstep_reuse_pch(${objects} ${ARG_PCH})
  lockstep_compile_together(${objects})
  target_sources(${target} PRIVATE $<TARGET_OBJECTS:${objects}>)
endfunction()

# lockstep_source_headers(HEADERS folders... SOURCES a.cpp ...): the same for single sources.
function(lockstep_source_headers)
  cmake_parse_arguments(ARG "" "" "HEADERS;SOURCES" ${ARGN})
  list(REMOVE_ITEM ARG_HEADERS ${CMAKE_CXX_IMPLICIT_INCLUDE_DIRECTORIES})
  list(TRANSFORM ARG_HEADERS PREPEND "-isystem")
  set_property(SOURCE ${ARG_SOURCES} APPEND PROPERTY COMPILE_OPTIONS ${ARG_HEADERS})
endfunction()

# lockstep_compile_apart(a.cpp ...): sources that share a run of the compiler with no other.
function(lockstep_compile_apart)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# lockstep_kernels(TARGET a.cu ...): CUDA kernels, each compiled apart by every CMake.
function(lockstep_kernels target)
  target_sources(${target} PRIVATE ${ARGN})
  lockstep_compile_apart(${ARGN})
endfunction()

# The instruction sets that kernels are compiled for. LOCKSTEP_ISA=native leaves the best one of this machine.
set(lockstep_isa_levels baseline)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(lockstep_isa_levels baseline avx2 avx512)
  set(lockstep_bf16_levels avx512_bf16)
endif()
if(LOCKSTEP_ISA STREQUAL "native")
  execute_process(COMMAND "${CMAKE_CXX_COMPILER}" -march=native -dM -E -x c++ /dev/null OUTPUT_VARIABLE macros
                          COMMAND_ERROR_IS_FATAL ANY)
  set(lockstep_isa_levels baseline)
  if(NOT macros MATCHES "__AVX512BF16__")
    set(lockstep_bf16_levels "")
  endif()
  if(macros MATCHES "__AVX2__" AND macros MATCHES "__FMA__" AND macros MATCHES "__F16C__")
    set(lockstep_isa_levels avx2)
    if(macros MATCHES "__AVX512F__" AND macros MATCHES "__AVX512BW__" AND macros MATCHES "__AVX512DQ__"
       AND macros MATCHES "__AVX512VL__")
      set(lockstep_isa_levels avx512)
    endif()
  endif()
  target_compile_definitions(lockstep_flags INTERFACE LOCKSTEP_ONE_ISA=isa_${lockstep_isa_levels})
endif()
set(lockstep_isa_levels ${lockstep_isa_levels} CACHE INTERNAL "For the Python package too, which lies outside")
set(lockstep_bf16_levels ${lockstep_bf16_levels} CACHE INTERNAL "Those with products of bfloat16, likewise")

# lockstep_isa_sources(TARGET file.cpp [LEVELS ...]): compiles one file for plain x86-64, AVX2 and AVX-512
# (lockstep_isa_levels), or for other levels.
# The file defines everything inside namespace LOCKSTEP_ISA; base/detail/instruction_set.h picks one at run time.
# Contraction is off so that a multiply and an add are never fused behind our back.
function(lockstep_isa_sources target)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "" "LEVELS")
  if(NOT DEFINED ARG_LEVELS)
    set(ARG_LEVELS ${lockstep_isa_levels})
  endif()
  foreach(file ${ARG_UNPARSED_ARGUMENTS})
    foreach(level ${ARG_LEVELS})
      get_filename_component(stem ${file} NAME_WE)
      get_filename_component(folder ${file} DIRECTORY)
      set(object ${target}_${stem}_${level})
      add_library(${object} OBJECT ${file})
      target_link_libraries(${object} PRIVATE lockstep_flags)
      target_include_directories(${object} PRIVATE "${PROJECT_SOURCE_DIR}/include" "${PROJECT_SOURCE_DIR}/src"
                                                   "${PROJECT_SOURCE_DIR}/tests")
      target_compile_definitions(${object} PRIVATE LOCKSTEP_ISA=isa_${level})
      target_compile_options(${object} PRIVATE -ffp-contract=off)
      # Under sanitizers everybody waits for the compiler, but nobody for what kernels compute, if that is not -O0.
      if(LOCKSTEP_SANITIZE)
        target_compile_options(${object} PRIVATE -O1)
      else()
        target_compile_options(${object} PRIVATE -O3)
      endif()
      if(level STREQUAL "avx2")
        target_compile_options(${object} PRIVATE -mavx2 -mfma -mf16c)
      elseif(level MATCHES "avx512")
        target_compile_options(${object} PRIVATE -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx2 -mfma -mf16c
                                                 -mprefer-vector-width=512)
        if(level STREQUAL "avx512_bf16")
          target_compile_options(${object} PRIVATE -mavx512bf16)
        endif()
      endif()
      target_sources(${target} PRIVATE $<TARGET_OBJECTS:${object}>)
      set_property(GLOBAL APPEND PROPERTY LOCKSTEP_ISA_OBJECTS $<TARGET_OBJECTS:${object}>)
    endforeach()
  endforeach()
endfunction()
