# SPDX-License-Identifier: Apache-2.0
# The library: millrace_core, known to users as millrace::core.

find_package(Threads REQUIRED)
find_package(PkgConfig QUIET)
if(PkgConfig_FOUND)
  pkg_check_modules(LIBDW QUIET libdw)  # names functions in the watchdog's stack traces
endif()

# io_uring: its calls and structures come from the kernel's own headers, no library is needed.
set(millrace_has_uring 0)
if(MILLRACE_URING)
  include(CheckCXXSourceCompiles)
  check_cxx_source_compiles("
    #include <linux/io_uring.h>
    int main() {
      return IORING_RECV_MULTISHOT + IORING_SETUP_DEFER_TASKRUN + IORING_REGISTER_PBUF_RING;
    }" MILLRACE_KERNEL_HEADERS_KNOW_URING)
  if(MILLRACE_KERNEL_HEADERS_KNOW_URING)
    set(millrace_has_uring 1)
  else()
    message(STATUS "io_uring: off, the kernel's headers are older than 6.1")
  endif()
endif()

set(millrace_core_layers base sys buffer concurrent loop channel transport codec handler bootstrap
                         coro)
set(millrace_core_sources)
foreach(layer IN LISTS millrace_core_layers)
  file(GLOB_RECURSE found CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/${layer}/*.cc")
  if(NOT millrace_has_uring)
    list(FILTER found EXCLUDE REGEX "/uring[/.]")
  endif()
  list(APPEND millrace_core_sources ${found})
endforeach()

# Adds the library as `target`; `kind` is empty (BUILD_SHARED_LIBS decides), STATIC or SHARED.
function(millrace_add_core target kind)
  add_library(${target} ${kind} ${millrace_core_sources})
  millrace_compile_options(${target})
  target_include_directories(${target}
    PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
           $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>
    PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_compile_definitions(${target} PRIVATE MILLRACE_HAS_URING=${millrace_has_uring})
  target_link_libraries(${target} PUBLIC Threads::Threads PRIVATE ${CMAKE_DL_LIBS})
  if(LIBDW_FOUND)
    target_compile_definitions(${target} PRIVATE MILLRACE_HAVE_LIBDW=1)
    target_include_directories(${target} SYSTEM PRIVATE ${LIBDW_INCLUDE_DIRS})
    # By name, not by path: a static library hands this on to whoever links the installed copy.
    target_link_libraries(${target} PRIVATE ${LIBDW_LIBRARIES})
    target_link_directories(${target} PRIVATE ${LIBDW_LIBRARY_DIRS})
  endif()
endfunction()

millrace_add_core(millrace_core "")
add_library(millrace::core ALIAS millrace_core)
set_target_properties(millrace_core PROPERTIES
  EXPORT_NAME core
  VERSION ${PROJECT_VERSION}
  SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})

# What tests and fuzz targets link. They look at hidden symbols, so it is always a static library.
if(BUILD_SHARED_LIBS AND (MILLRACE_BUILD_TESTS OR MILLRACE_BUILD_FUZZ))
  millrace_add_core(millrace_core_for_tests STATIC)
else()
  add_library(millrace_core_for_tests ALIAS millrace_core)
endif()
