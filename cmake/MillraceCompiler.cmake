# SPDX-License-Identifier: Apache-2.0
# How our own code is compiled. Nothing here reaches a consumer of the library.

if(NOT CMAKE_CXX_COMPILER_ID MATCHES "GNU|Clang")
  message(WARNING "Millrace is tested with g++ 12 and clang 14 only")
endif()

# Warnings and language settings of every target of ours.
function(millrace_compile_options target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  set_target_properties(${target} PROPERTIES
    CXX_EXTENSIONS OFF
    CXX_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON)
  target_compile_options(${target} PRIVATE
    -Wall -Wextra -Wshadow -Wconversion -Wold-style-cast
    $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety>
    $<$<BOOL:${MILLRACE_WERROR}>:-Werror>
    # Without it, symmetric transfer between coroutines grows the stack at -O0.
    $<$<AND:$<CXX_COMPILER_ID:GNU>,$<CONFIG:Debug>>:-foptimize-sibling-calls>)
endfunction()

# A sanitizer has to see all code, so it is set for the whole build.
if(MILLRACE_SANITIZE)
  add_compile_options(-fsanitize=${MILLRACE_SANITIZE} -fno-sanitize-recover=all
                      -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${MILLRACE_SANITIZE})
endif()
if(MILLRACE_BUILD_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "MILLRACE_BUILD_FUZZ needs clang: libFuzzer is part of it")
  endif()
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
if(MILLRACE_COVERAGE)
  add_compile_options(--coverage -fprofile-abs-path -fprofile-update=atomic)
  add_link_options(--coverage)
endif()

if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(MILLRACE_CCACHE ccache)
  if(MILLRACE_CCACHE)
    # The sloppiness lets ccache serve files that use a precompiled header.
    set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
        CCACHE_SLOPPINESS=pch_defines,time_macros ${MILLRACE_CCACHE})
  endif()
endif()
