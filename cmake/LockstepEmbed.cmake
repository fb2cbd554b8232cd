# SPDX-License-Identifier: Apache-2.0
# lockstep_embed(TARGET NAMESPACE a.js b.css ...): the text of these files in the target. page/page.js becomes
#     extern const std::string_view page_js;
# in NAMESPACE, which a header of the target declares. A comment at the head of a file stays in the file.
#
# The same file is the script that the build runs: cmake -DNAMESPACE=n -DFILE=page.js -DOUT=page_js.cpp -P ...
if(CMAKE_SCRIPT_MODE_FILE)
  file(READ "${FILE}" content)
  if(content MATCHES "^(//[^\n]*\n|/[*][^\n]*[*]/\n)+")
    string(LENGTH "${CMAKE_MATCH_0}" head)
    string(SUBSTRING "${content}" ${head} -1 content)
  endif()
  string(FIND "${content}" ")embedded\"" end)
  if(NOT end EQUAL -1)
    message(FATAL_ERROR "${FILE}: got )embedded\" in it, which would end the string it is embedded as")
  endif()
  get_filename_component(name "${FILE}" NAME)
  string(MAKE_C_IDENTIFIER "${name}" variable)
  file(WRITE "${OUT}" "// Made from ${name} by cmake/LockstepEmbed.cmake.\n"
                      "#include <string_view>\n\nnamespace ${NAMESPACE} {\n\n"
                      "extern const std::string_view ${variable};\n"
                      "constinit const std::string_view ${variable} = R\"embedded(${content})embedded\";\n\n"
                      "}  // namespace ${NAMESPACE}\n")
  return()
endif()

set(lockstep_embed_script "${CMAKE_CURRENT_LIST_FILE}")

function(lockstep_embed target namespace)
  foreach(file ${ARGN})
    get_filename_component(name "${file}" NAME)
    string(MAKE_C_IDENTIFIER "${name}" variable)
    set(source "${CMAKE_CURRENT_SOURCE_DIR}/${file}")
    set(out "${CMAKE_CURRENT_BINARY_DIR}/${variable}.cpp")
    add_custom_command(
      OUTPUT "${out}"
      COMMAND "${CMAKE_COMMAND}" "-DNAMESPACE=${namespace}" "-DFILE=${source}" "-DOUT=${out}" -P
              "${lockstep_embed_script}"
      DEPENDS "${source}" "${lockstep_embed_script}"
      COMMENT "Embedding ${file}"
      VERBATIM)
    target_sources(${target} PRIVATE "${out}")
  endforeach()
endfunction()
