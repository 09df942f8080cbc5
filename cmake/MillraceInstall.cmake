# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` copies: headers, library, CMake package and pkg-config file.

include(CMakePackageConfigHelpers)

set(millrace_cmake_dir "${CMAKE_INSTALL_LIBDIR}/cmake/millrace")

install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/millrace" DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN "*.h")
install(TARGETS millrace_core EXPORT millrace-core-targets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(EXPORT millrace-core-targets NAMESPACE millrace:: DESTINATION ${millrace_cmake_dir})
if(millrace_has_tls)
  install(TARGETS millrace_tls EXPORT millrace-tls-targets
          ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
          LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
          RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  install(EXPORT millrace-tls-targets NAMESPACE millrace:: DESTINATION ${millrace_cmake_dir})
  # The core lies beside it, wherever the tree is moved to.
  set_target_properties(millrace_tls PROPERTIES INSTALL_RPATH "$ORIGIN")
endif()

configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/millraceConfig.cmake.in"
                              "${PROJECT_BINARY_DIR}/millraceConfig.cmake"
                              INSTALL_DESTINATION ${millrace_cmake_dir})
write_basic_package_version_file("${PROJECT_BINARY_DIR}/millraceConfigVersion.cmake"
                                 COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/millraceConfig.cmake"
              "${PROJECT_BINARY_DIR}/millraceConfigVersion.cmake"
        DESTINATION ${millrace_cmake_dir})

# The prefix is written relative to the file, so an installed tree can be moved.
file(RELATIVE_PATH millrace_pc_to_prefix "/prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/prefix")
string(REGEX REPLACE "/$" "" millrace_pc_to_prefix "${millrace_pc_to_prefix}")
set(millrace_pc_private "${CMAKE_THREAD_LIBS_INIT}")
foreach(lib IN LISTS CMAKE_DL_LIBS LIBDW_LIBRARIES)
  string(APPEND millrace_pc_private " -l${lib}")
endforeach()
string(STRIP "${millrace_pc_private}" millrace_pc_private)
# A static library needs them always; few people know of pkg-config's --static.
if(BUILD_SHARED_LIBS)
  set(millrace_pc_static "")
  set(millrace_pc_tls_static "")
else()
  set(millrace_pc_static " ${millrace_pc_private}")
  set(millrace_pc_tls_static ", openssl >= 3.0")
endif()
set(millrace_components core)
if(millrace_has_tls)
  list(APPEND millrace_components tls)
endif()
foreach(component IN LISTS millrace_components)
  configure_file("${PROJECT_SOURCE_DIR}/cmake/millrace-${component}.pc.in"
                 "${PROJECT_BINARY_DIR}/millrace-${component}.pc" @ONLY)
  install(FILES "${PROJECT_BINARY_DIR}/millrace-${component}.pc"
          DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
endforeach()
