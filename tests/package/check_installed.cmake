# SPDX-License-Identifier: Apache-2.0
# What cmake --install has left in PREFIX, as others use it: PART is pkg_config, completion or manual. A tool that is
# not there is a test that is skipped.

function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ERROR_IS_FATAL ANY)
endfunction()
function(expect what output expected)
  if(NOT output MATCHES "${expected}")
    message(FATAL_ERROR "${what} gave '${output}', expected '${expected}'")
  endif()
endfunction()

set(PREFIX "${LOCKSTEP_BUILD}/tests/package/use_lockstep/prefix")
set(folder "${LOCKSTEP_BUILD}/tests/package/installed")
file(MAKE_DIRECTORY "${folder}")

# A program of one layer is compiled and linked with nothing but pkg-config's words. Then with all code of all layers,
# whoever calls it: whatever any of them stands on is among these words.
function(check_pkg_config)
  file(GLOB_RECURSE file "${PREFIX}/lockstep.pc")
  get_filename_component(where "${file}" DIRECTORY)
  set(ENV{PKG_CONFIG_PATH} "${where}")
  foreach(option cflags libs)
    execute_process(COMMAND "${tool}" --${option} lockstep OUTPUT_VARIABLE ${option} COMMAND_ERROR_IS_FATAL ANY)
    separate_arguments(${option} UNIX_COMMAND "${${option}}")
  endforeach()
  run("${COMPILER}" -O0 ${cflags} "${LOCKSTEP_SOURCE}/tests/package/outside/main.cpp" -o "${folder}/outside" ${libs})
  execute_process(COMMAND "${folder}/outside" OUTPUT_VARIABLE output COMMAND_ERROR_IS_FATAL ANY)
  expect("the program of one layer" "${output}" "^sum over 7 replicas: 28\n$")
  list(TRANSFORM libs REPLACE "^-Wl,--start-group$" "-Wl,--whole-archive")
  list(TRANSFORM libs REPLACE "^-Wl,--end-group$" "-Wl,--no-whole-archive")
  run("${COMPILER}" -O0 ${cflags} "${LOCKSTEP_SOURCE}/tests/package/outside/main.cpp" -o "${folder}/whole" ${libs})
  execute_process(COMMAND "${folder}/whole" OUTPUT_VARIABLE output COMMAND_ERROR_IS_FATAL ANY)
  expect("the program of all layers" "${output}" "^sum over 7 replicas: 28\n$")
endfunction()

# The shells complete commands, options, values and networks.
function(check_completion)
  set(script "${PREFIX}/share/bash-completion/completions/lockstep")
  foreach(case "lockstep;ver=verify" "lockstep;train;--optim=--optimizer" "lockstep;train;--optimizer;ad=adam"
               "lockstep;train;lene=lenet" "lockstep;hash;x=")
    string(REGEX MATCH "^(.*)=(.*)$" ignored "${case}")
    list(LENGTH CMAKE_MATCH_1 count)
    math(EXPR last "${count} - 1")
    string(REPLACE ";" " " words "${CMAKE_MATCH_1}")
    execute_process(
      COMMAND bash -c "source '${script}'; COMP_WORDS=(${words}); COMP_CWORD=${last}; _lockstep; \
echo \" \${COMPREPLY[*]} \""
      OUTPUT_VARIABLE output COMMAND_ERROR_IS_FATAL ANY)
    expect("completion of '${words}'" "${output}" " ${CMAKE_MATCH_2} ")
  endforeach()
  find_program(zsh zsh)
  if(NOT zsh)
    message("skipped: bash completes, no zsh here")
    return()
  endif()
  run("${zsh}" -n "${PREFIX}/share/zsh/vendor-completions/_lockstep")
  execute_process(
    COMMAND "${zsh}" -f -c "autoload -U compinit; compinit -u -d '${folder}/zcompdump'; source \
'${PREFIX}/share/zsh/vendor-completions/_lockstep'; print -r -- \$_comps[lockstep]"
    OUTPUT_VARIABLE output COMMAND_ERROR_IS_FATAL ANY)
  expect("zsh" "${output}" "^_lockstep\n$")
endfunction()

# A page a command, which man reads without complaint.
function(check_manual)
  file(GLOB pages "${PREFIX}/share/man/man1/lockstep*.1")
  list(LENGTH pages count)
  execute_process(COMMAND "${LOCKSTEP_BUILD}/bin/lockstep" --help OUTPUT_VARIABLE help COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX REPLACE "^.*ubcommands:\n" "" help "${help}")
  string(REGEX MATCHALL "\n  [a-z]+" commands "\n${help}")
  list(LENGTH commands expected)
  math(EXPR expected "${expected} + 1")
  expect("the number of pages" "${count}" "^${expected}$")
  file(READ "${PREFIX}/share/man/man1/lockstep-train.1" page)
  expect("the page on train" "${page}" "seed.*Decides all that is random")
  find_program(man man)
  if(NOT man)
    message("skipped: the pages are there, no man here reads them")
    return()
  endif()
  foreach(page ${pages})
    execute_process(COMMAND "${CMAKE_COMMAND}" -E env LC_ALL=C.UTF-8 MANWIDTH=100 "${man}" --warnings -l "${page}"
                    OUTPUT_VARIABLE output ERROR_VARIABLE error COMMAND_ERROR_IS_FATAL ANY)
    expect("man's complaint of ${page}" "[${error}]" "^\\[\\]$")
    expect("${page}" "${output}" "NAME.*SYNOPSIS.*OPTIONS")
  endforeach()
endfunction()

set(tools_pkg_config pkg-config)
set(tools_completion bash)
set(tools_manual bash)
find_program(tool ${tools_${PART}})
if(NOT tool)
  message("skipped: no ${tools_${PART}} here")
else()
  cmake_language(CALL check_${PART})
endif()
