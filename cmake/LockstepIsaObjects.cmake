# SPDX-License-Identifier: Apache-2.0
# cmake -DNM=nm -DOBJECTS=a.o;b.o -P LockstepIsaObjects.cmake: fails when an object that is compiled once an
# instruction set holds weak code or data. The linker keeps one of its copies for the whole program, maybe AVX-512's.
set(found "")
foreach(object ${OBJECTS})
  execute_process(COMMAND "${NM}" -C --defined-only "${object}" OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "[0-9a-f]+ [WVu] [^\n]+" weak "${symbols}")
  list(FILTER weak EXCLUDE REGEX "DW.ref.__gxx_personality_v0") # a pointer of the exception tables, the same anywhere
  foreach(symbol ${weak})
    string(APPEND found "\n  ${object}: ${symbol}")
  endforeach()
endforeach()
if(found)
  message(FATAL_ERROR "symbols that merge across instruction sets:${found}\n"
                      "expected none: see include/lockstep/base/detail/instruction_set.h")
endif()
list(LENGTH OBJECTS count)
message(STATUS "${count} objects hold no symbol that merges across instruction sets")
