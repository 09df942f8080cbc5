# SPDX-License-Identifier: Apache-2.0
# One install test. Variables: way, kind (static or shared), source (our tree), version, work (a
# folder for this kind), compiler, generator, pkg_config, tls (1: there is the component tls).
#
# The ways:
#   prepare            builds the library and installs it into <work>/prefix
#   find_package       a CMake project finds the installed copy
#   missing_component  the same asks for a component that does not exist and is told so
#   tls_component      the same asks for tls alone, and gets what that needs
#   add_subdirectory   a CMake project has our tree inside its own; the shared one without io_uring
#   pkg_config         the compiler alone, with the flags of pkg-config
#   hidden_symbols     the shared libraries export nothing of the C++ kind but millrace's own names

cmake_minimum_required(VERSION 3.22)

set(consumer "${source}/tests/install/consumer")
set(prefix "${work}/prefix")
set(here "${work}/${way}")
if(kind STREQUAL "shared")
  set(shared ON)
  set(with_uring OFF)
else()
  set(shared OFF)
  set(with_uring ON)
endif()
# The library is built four times: several of its files at a time, as some users build everything.
set(configure "${CMAKE_COMMAND}" -G "${generator}" -D CMAKE_BUILD_TYPE=Release
              -D "CMAKE_CXX_COMPILER=${compiler}" -D CMAKE_UNITY_BUILD=ON
              -D CMAKE_UNITY_BUILD_BATCH_SIZE=10)

# Runs a command; its output is shown if it fails.
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output
                  ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    list(JOIN ARGN " " words)
    message(FATAL_ERROR "${words}\n${output}")
  endif()
endfunction()

# Runs the consumer, which prints the version of the library it runs with.
function(run_consumer)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output
                  ERROR_VARIABLE output OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT result EQUAL 0 OR NOT output STREQUAL "millrace ${version}")
    message(FATAL_ERROR "${ARGN}: expected 'millrace ${version}', got ${result}: ${output}")
  endif()
endfunction()

function(prepare)
  file(REMOVE_RECURSE "${prefix}")
  run(${configure} -S "${source}" -B "${here}" -D BUILD_SHARED_LIBS=${shared}
      -D MILLRACE_BUILD_TESTS=OFF -D MILLRACE_BUILD_EXAMPLES=OFF
      -D "CMAKE_INSTALL_PREFIX=${prefix}" -D CMAKE_INSTALL_LIBDIR=lib)
  run("${CMAKE_COMMAND}" --build "${here}" -j 2)
  run("${CMAKE_COMMAND}" --install "${here}")
endfunction()

function(find_package_way)
  file(REMOVE_RECURSE "${here}")
  run(${configure} -S "${consumer}" -B "${here}" -D "CMAKE_PREFIX_PATH=${prefix}")
  run("${CMAKE_COMMAND}" --build "${here}")
  run_consumer("${here}/consumer")
endfunction()

function(tls_component)
  file(REMOVE_RECURSE "${here}")
  run(${configure} -S "${consumer}" -B "${here}" -D "CMAKE_PREFIX_PATH=${prefix}" -D COMPONENT=tls)
  run("${CMAKE_COMMAND}" --build "${here}" --target tls_consumer)
  run_consumer("${here}/tls_consumer")
  if(shared)
    return()
  endif()
  # A static library needs OpenSSL where it is linked, and says so.
  execute_process(COMMAND ${configure} -S "${consumer}" -B "${here}/without"
                          -D "CMAKE_PREFIX_PATH=${prefix}" -D COMPONENT=tls
                          -D CMAKE_DISABLE_FIND_PACKAGE_OpenSSL=ON
                  RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  string(REGEX REPLACE "[ \n]+" " " output "${output}")
  if(result EQUAL 0 OR NOT output MATCHES "millrace::tls needs OpenSSL 3")
    message(FATAL_ERROR "expected a word about OpenSSL, got ${result}: ${output}")
  endif()
endfunction()

function(missing_component)
  file(REMOVE_RECURSE "${here}")
  execute_process(COMMAND ${configure} -S "${consumer}" -B "${here}"
                          -D "CMAKE_PREFIX_PATH=${prefix}" -D COMPONENT=teapot
                  RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  string(REGEX REPLACE "[ \n]+" " " output "${output}")
  set(present "core")
  if(tls)
    set(present "core, tls")
  endif()
  if(result EQUAL 0 OR NOT output MATCHES "has no component 'teapot'; it has: ${present}")
    message(FATAL_ERROR "expected a word about the component, got ${result}: ${output}")
  endif()
endfunction()

function(add_subdirectory_way)
  file(REMOVE_RECURSE "${here}")
  run(${configure} -S "${consumer}" -B "${here}" -D "MILLRACE_TREE=${source}"
      -D BUILD_SHARED_LIBS=${shared} -D CMAKE_CXX_COMPILER_LAUNCHER=${launcher}
      -D MILLRACE_URING=${with_uring} -D CMAKE_CXX_FLAGS=-Werror=return-type)
  run("${CMAKE_COMMAND}" --build "${here}" -j 2)
  run_consumer("${here}/consumer")
  # Where there is none, epoll takes its place.
  run_consumer("${CMAKE_COMMAND}" -E env MILLRACE_IO=uring MILLRACE_LOG=off "${here}/consumer")
  if(tls)
    run_consumer("${here}/tls_consumer")
  endif()
endfunction()

function(pkg_config_way)
  file(MAKE_DIRECTORY "${here}")
  set(ENV{PKG_CONFIG_PATH} "${prefix}/lib/pkgconfig")
  set(ENV{LD_LIBRARY_PATH} "${prefix}/lib")
  build_by_pkg_config(millrace-core main.cc)
  if(tls)
    build_by_pkg_config(millrace-tls tls.cc)
  endif()
endfunction()

function(build_by_pkg_config package program)
  set(query --cflags --libs ${package})
  if(NOT shared)
    list(PREPEND query --static)
  endif()
  execute_process(COMMAND "${pkg_config}" ${query} RESULT_VARIABLE result OUTPUT_VARIABLE flags
                  ERROR_VARIABLE flags)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "pkg-config: ${flags}")
  endif()
  separate_arguments(flags UNIX_COMMAND "${flags}")
  run("${compiler}" -std=c++20 "${consumer}/${program}" -o "${here}/${program}.out" ${flags})
  run_consumer("${here}/${program}.out")
endfunction()

function(hidden_symbols)
  exported_only(core "millrace::version\\(\\)")
  if(tls)
    exported_only(tls "millrace::tlsHandshake\\(millrace::Channel&\\)")
  endif()
endfunction()

# The library of this component exports `known`, and nothing that is not millrace's.
function(exported_only component known)
  execute_process(COMMAND nm --dynamic --defined-only --demangle
                          "${prefix}/lib/libmillrace_${component}.so"
                  RESULT_VARIABLE result OUTPUT_VARIABLE symbols ERROR_VARIABLE symbols)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "nm: ${symbols}")
  endif()
  string(REPLACE ";" "," symbols "${symbols}")
  string(REPLACE "\n" ";" symbols "${symbols}")
  if(NOT symbols MATCHES " T ${known}")
    message(FATAL_ERROR "${known} is not exported")
  endif()
  # Weak ones are instances of templates and inline functions of the standard library.
  list(FILTER symbols INCLUDE REGEX "^[0-9a-f]+ [TDBR] ")
  list(FILTER symbols EXCLUDE REGEX "millrace::")
  if(symbols)
    list(JOIN symbols "\n" symbols)
    message(FATAL_ERROR "exported, but not ours:\n${symbols}")
  endif()
endfunction()

find_program(launcher ccache)
if(NOT launcher)
  set(launcher "")
endif()

if(way STREQUAL "find_package" OR way STREQUAL "add_subdirectory" OR way STREQUAL "pkg_config")
  cmake_language(CALL ${way}_way)
else()
  cmake_language(CALL ${way})
endif()
