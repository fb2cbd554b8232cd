# SPDX-License-Identifier: Apache-2.0
# Runs PROGRAM once for each entry of RUNS (arguments, separated by |). Each must end with 0 and print PRINTS, a regular
# expression, and all must print the same.

string(REPLACE "|" ";" RUNS "${RUNS}")
foreach(run ${RUNS})
  separate_arguments(arguments UNIX_COMMAND "${run}")
  execute_process(COMMAND "${PROGRAM}" ${arguments} OUTPUT_VARIABLE output COMMAND_ERROR_IS_FATAL ANY)
  if(NOT output MATCHES "${PRINTS}")
    message(FATAL_ERROR "${PROGRAM} ${run}: printed '${output}', expected '${PRINTS}'")
  endif()
  if(DEFINED first AND NOT output STREQUAL first)
    message(FATAL_ERROR "${PROGRAM} ${run}: printed '${output}', expected what another placement printed: '${first}'")
  endif()
  set(first "${output}")
endforeach()
