# SPDX-License-Identifier: Apache-2.0
# Each examples/<name>.cc is a program <build>/examples/<name>. They see public headers only.

file(GLOB millrace_example_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/examples/*.cc")
foreach(source IN LISTS millrace_example_sources)
  get_filename_component(program "${source}" NAME_WE)
  add_executable(${program} "${source}")
  millrace_compile_options(${program})
  target_link_libraries(${program} PRIVATE millrace::core)
  set_target_properties(${program} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/examples")
endforeach()
