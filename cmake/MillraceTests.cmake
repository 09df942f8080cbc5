# SPDX-License-Identifier: Apache-2.0
# The tests: one program per layer from tests/<layer>/**/*_test.cc.
#
# A file named *_slow_test.cc goes into a second program of its layer, whose tests carry the label
# `slow`. A layer without tests has no program.

include(GoogleTest)
find_package(GTest REQUIRED)
find_package(Python3 REQUIRED COMPONENTS Interpreter)
find_package(rapidcheck QUIET)
if(NOT TARGET rapidcheck)
  find_library(MILLRACE_RAPIDCHECK rapidcheck REQUIRED)
  add_library(rapidcheck INTERFACE IMPORTED)
  target_link_libraries(rapidcheck INTERFACE ${MILLRACE_RAPIDCHECK})
endif()

if(MILLRACE_SANITIZE)
  set(millrace_test_timeout 360)
else()
  set(millrace_test_timeout 120)
endif()

# Helpers and main() of all layers' tests; it also makes the precompiled header that they share.
file(GLOB millrace_support_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/support/*.cc")
if(NOT millrace_has_uring)
  list(FILTER millrace_support_sources EXCLUDE REGEX "/ring_script\\.cc$")
endif()
add_library(millrace_test_support STATIC ${millrace_support_sources})
millrace_compile_options(millrace_test_support)
target_include_directories(millrace_test_support PUBLIC "${PROJECT_SOURCE_DIR}/src"
                                                        "${PROJECT_SOURCE_DIR}/tests")
target_link_libraries(millrace_test_support PUBLIC millrace_core_for_tests GTest::gmock GTest::gtest
                                                   rapidcheck)
target_precompile_headers(millrace_test_support PRIVATE
  <gmock/gmock.h> <gtest/gtest.h> <atomic> <chrono> <functional> <memory> <mutex> <string> <thread>
  <utility> <vector>)
# With these, equal content gives an equal precompiled header, as ccache needs it.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(millrace_pch_options -fpch-preprocess)
else()
  set(millrace_pch_options "SHELL:-Xclang -fno-pch-timestamp")
endif()
target_compile_options(millrace_test_support PRIVATE "${millrace_pch_options}")

# The tests of a program that match `filter`, in so many processes.
function(millrace_add_parts program prefix label name parts filter)
  math(EXPR last "${parts} - 1")
  foreach(part RANGE ${last})
    set(test "${prefix}.part.${program}.${name}.${part}")
    add_test(NAME "${test}"
      COMMAND ${program} --gtest_brief=1 "--gtest_filter=${filter}"
              "--gtest_output=xml:${PROJECT_BINARY_DIR}/test-results/parts/${test}.xml")
    set_tests_properties("${test}" PROPERTIES
      ENVIRONMENT "GTEST_TOTAL_SHARDS=${parts};GTEST_SHARD_INDEX=${part}"
      LABELS ${label} TIMEOUT 1200)
  endforeach()
endfunction()

# Registers the tests of a gtest program under `<prefix>.<Suite>.<Test>` with this label. With
# MILLRACE_SHARDED_TESTS in a few parts instead, each one process: starting a process with a sanitizer
# takes longer than most tests. tools/test_summary.py counts the tests in them.
function(millrace_discover_tests program prefix label)
  if(MILLRACE_SHARDED_TESTS)
    # A ring that was closed interrupts sleeps of its process for a while: those tests keep to themselves.
    set(rings "*Uring*:*uring*:*StreamRing*")
    millrace_add_parts(${program} ${prefix} ${label} rings 2 "${rings}")
    millrace_add_parts(${program} ${prefix} ${label} rest 4 "-${rings}")
    return()
  endif()
  gtest_discover_tests(${program}
    TEST_PREFIX "${prefix}."
    DISCOVERY_TIMEOUT 120
    PROPERTIES TIMEOUT ${millrace_test_timeout} LABELS ${label})
endfunction()

function(millrace_add_layer_tests program layer label)
  add_executable(${program} ${ARGN})
  millrace_compile_options(${program})
  target_compile_options(${program} PRIVATE "${millrace_pch_options}")
  target_link_libraries(${program} PRIVATE millrace_test_support)
  if(layer STREQUAL "tls")  # its tests look into OpenSSL, too
    target_link_libraries(${program} PRIVATE millrace_tls_for_tests OpenSSL::SSL OpenSSL::Crypto)
  endif()
  target_precompile_headers(${program} REUSE_FROM millrace_test_support)
  set_target_properties(${program} PROPERTIES UNITY_BUILD ${MILLRACE_UNITY_TESTS}
                                              UNITY_BUILD_BATCH_SIZE 10)
  millrace_discover_tests(${program} ${layer} ${label})
endfunction()

set(millrace_tested_layers ${millrace_core_layers} integration fault)
if(millrace_has_tls)
  list(APPEND millrace_tested_layers tls)
endif()
foreach(layer IN LISTS millrace_tested_layers)
  file(GLOB_RECURSE tests CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/${layer}/*_test.cc")
  if(NOT millrace_has_uring)  # tests of what is inside of the engine
    list(FILTER tests EXCLUDE REGEX "/(uring|uring_fault|server_ring|server_ring_handlers|stream_ring_fault|stream_ring_zero_copy|receive_buffers)_test\\.cc$")
  endif()
  set(slow_tests ${tests})
  list(FILTER slow_tests INCLUDE REGEX "_slow_test\\.cc$")
  list(FILTER tests EXCLUDE REGEX "_slow_test\\.cc$")
  if(tests)
    millrace_add_layer_tests(millrace_${layer}_tests ${layer} ${layer} ${tests})
  endif()
  if(slow_tests)
    millrace_add_layer_tests(millrace_${layer}_slow_tests ${layer} slow ${slow_tests})
  endif()
endforeach()

# For the test of code that is unloaded.
add_library(millrace_test_plugin MODULE "${PROJECT_SOURCE_DIR}/tests/plugin/posting_plugin.cc")
millrace_compile_options(millrace_test_plugin)
target_include_directories(millrace_test_plugin PRIVATE "${PROJECT_SOURCE_DIR}/include")
set_source_files_properties("${PROJECT_SOURCE_DIR}/tests/loop/unloaded_code_test.cc" PROPERTIES
  COMPILE_DEFINITIONS "MILLRACE_TEST_PLUGIN=\"$<TARGET_FILE:millrace_test_plugin>\"")
add_dependencies(millrace_loop_tests millrace_test_plugin)

# Two copies of a library that makes messages, by each of our compilers that is there. They take what
# they need of the library from the program that loads them.
set(millrace_message_plugins)
foreach(compiler g++ clang++)
  find_program(MILLRACE_CHECK_${compiler} ${compiler})
  if(NOT MILLRACE_CHECK_${compiler})
    continue()
  endif()
  foreach(copy first second)
    set(plugin "${CMAKE_CURRENT_BINARY_DIR}/message_plugin.${copy}.${compiler}.so")
    add_custom_command(OUTPUT "${plugin}"
      COMMAND ${MILLRACE_CHECK_${compiler}} -std=c++20 -O1 -g -shared -fPIC -fvisibility=hidden
              "-I${PROJECT_SOURCE_DIR}/include" "-I${PROJECT_SOURCE_DIR}/tests" -MD -MF "${plugin}.d"
              -o "${plugin}" "${PROJECT_SOURCE_DIR}/tests/plugin/message_plugin.cc"
      DEPENDS "${PROJECT_SOURCE_DIR}/tests/plugin/message_plugin.cc"
      DEPFILE "${plugin}.d" VERBATIM)
    list(APPEND millrace_message_plugins "${plugin}")
  endforeach()
endforeach()
add_custom_target(millrace_message_plugins DEPENDS ${millrace_message_plugins})
list(JOIN millrace_message_plugins ":" millrace_message_plugin_paths)
set_source_files_properties("${PROJECT_SOURCE_DIR}/tests/channel/message_plugin_test.cc" PROPERTIES
  COMPILE_DEFINITIONS "MILLRACE_MESSAGE_PLUGINS=\"${millrace_message_plugin_paths}\"")
set_target_properties(millrace_channel_tests PROPERTIES ENABLE_EXPORTS ON)
add_dependencies(millrace_channel_tests millrace_message_plugins)

foreach(folder interleave checks compile_fail install examples docs soak)
  if(EXISTS "${PROJECT_SOURCE_DIR}/tests/${folder}/CMakeLists.txt")
    add_subdirectory("${PROJECT_SOURCE_DIR}/tests/${folder}")
  endif()
endforeach()
