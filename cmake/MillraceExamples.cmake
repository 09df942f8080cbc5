# SPDX-License-Identifier: Apache-2.0
# Each examples/<name>.cc is a program <build>/examples/<name>. They see public headers only.

# Those that make no sense without TLS; the others refuse --tls.
set(millrace_tls_examples starttls_chat)

file(GLOB millrace_example_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/examples/*.cc")
foreach(source IN LISTS millrace_example_sources)
  get_filename_component(program "${source}" NAME_WE)
  if(NOT millrace_has_tls AND program IN_LIST millrace_tls_examples)
    continue()
  endif()
  add_executable(${program} "${source}")
  millrace_compile_options(${program})
  target_compile_definitions(${program} PRIVATE EXAMPLE_HAS_TLS=${millrace_has_tls})
  target_link_libraries(${program} PRIVATE millrace::core)
  if(millrace_has_tls)
    target_link_libraries(${program} PRIVATE millrace::tls)
  endif()
  set_target_properties(${program} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/examples")
endforeach()
