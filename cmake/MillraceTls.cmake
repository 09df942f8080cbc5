# SPDX-License-Identifier: Apache-2.0
# TLS: millrace_tls, known to users as millrace::tls. OpenSSL 3 is seen in src/tls only.

set(millrace_has_tls 0)
if(NOT MILLRACE_TLS)
  return()
endif()
find_package(OpenSSL 3.0 QUIET)
if(NOT OpenSSL_FOUND)
  message(STATUS "TLS: off, there is no OpenSSL 3 (Debian's package is libssl-dev)")
  return()
endif()
set(millrace_has_tls 1)

file(GLOB_RECURSE millrace_tls_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/tls/*.cc")

# Adds the library as `target` on top of `core`; `kind` as for millrace_add_core.
function(millrace_add_tls target kind core)
  add_library(${target} ${kind} ${millrace_tls_sources})
  millrace_compile_options(${target})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(${target} PUBLIC ${core} PRIVATE OpenSSL::SSL OpenSSL::Crypto)
endfunction()

millrace_add_tls(millrace_tls "" millrace_core)
add_library(millrace::tls ALIAS millrace_tls)
set_target_properties(millrace_tls PROPERTIES
  EXPORT_NAME tls
  VERSION ${PROJECT_VERSION}
  SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})

# As millrace_core_for_tests.
if(BUILD_SHARED_LIBS AND (MILLRACE_BUILD_TESTS OR MILLRACE_BUILD_FUZZ))
  millrace_add_tls(millrace_tls_for_tests STATIC millrace_core_for_tests)
else()
  add_library(millrace_tls_for_tests ALIAS millrace_tls)
endif()
