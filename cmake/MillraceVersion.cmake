# SPDX-License-Identifier: Apache-2.0
# Reads the version from the header, which is the one place that says it.

function(millrace_read_version header out)
  file(STRINGS "${header}" lines REGEX "^#define MILLRACE_VERSION_(MAJOR|MINOR|PATCH) [0-9]+$")
  foreach(part MAJOR MINOR PATCH)
    if(NOT "${lines}" MATCHES "MILLRACE_VERSION_${part} ([0-9]+)")
      message(FATAL_ERROR "${header}: no line '#define MILLRACE_VERSION_${part} <number>'")
    endif()
    list(APPEND parts ${CMAKE_MATCH_1})
  endforeach()
  list(JOIN parts "." version)
  set(${out} ${version} PARENT_SCOPE)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${header}")
endfunction()
