# SPDX-License-Identifier: Apache-2.0
# Fuzz targets: each fuzz/<name>_fuzz.cc is a program, its seeds lie in fuzz/corpus/<name>/.
#
# With MILLRACE_BUILD_FUZZ libFuzzer drives them. Otherwise fuzz/replay_main.cc does: it feeds every
# seed once, as a test with the label `fuzz-replay`.

file(GLOB millrace_fuzz_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/fuzz/*_fuzz.cc")
foreach(source IN LISTS millrace_fuzz_sources)
  get_filename_component(program "${source}" NAME_WE)
  string(REGEX REPLACE "_fuzz$" "" name "${program}")
  set(library millrace_core_for_tests)
  if(name MATCHES "^(tls_|client_hello)")  # they look into OpenSSL, too
    if(NOT millrace_has_tls)
      continue()
    endif()
    set(library millrace_tls_for_tests OpenSSL::SSL OpenSSL::Crypto)
  endif()

  add_executable(${program} "${source}")
  millrace_compile_options(${program})
  target_include_directories(${program} PRIVATE "${PROJECT_SOURCE_DIR}/src"
                                                "${PROJECT_SOURCE_DIR}/tests")
  target_link_libraries(${program} PRIVATE ${library})
  set_target_properties(${program} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/fuzz")
  if(MILLRACE_BUILD_FUZZ)
    target_link_options(${program} PRIVATE -fsanitize=fuzzer)
  else()
    target_sources(${program} PRIVATE "${PROJECT_SOURCE_DIR}/fuzz/replay_main.cc")
    add_test(NAME fuzz-replay.${name}
             COMMAND ${program} "${PROJECT_SOURCE_DIR}/fuzz/corpus/${name}")
    set_tests_properties(fuzz-replay.${name} PROPERTIES
      LABELS fuzz-replay TIMEOUT ${millrace_test_timeout})
  endif()
endforeach()
