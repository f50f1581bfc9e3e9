# What `cmake --install` puts under the prefix besides the program: libcadre, its headers, and what CMake and pkg-config
# need to find them. The static libraries of the folders stay here.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

set(cadre_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/cadre)
set(cadre_generated_dir ${PROJECT_BINARY_DIR}/package)

install(TARGETS cadre_shared EXPORT cadre LIBRARY
  DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library NAMELINK_COMPONENT development)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/cadre DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  COMPONENT development FILES_MATCHING PATTERN "*.h")

install(EXPORT cadre NAMESPACE cadre:: FILE cadreTargets.cmake DESTINATION ${cadre_package_dir}
  COMPONENT development)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/cadreConfig.cmake.in ${cadre_generated_dir}/cadreConfig.cmake
  INSTALL_DESTINATION ${cadre_package_dir})
set(cadre_compatibility SameMajorVersion)
if(PROJECT_VERSION_MAJOR EQUAL 0)
  set(cadre_compatibility SameMinorVersion)
endif()
write_basic_package_version_file(${cadre_generated_dir}/cadreConfigVersion.cmake COMPATIBILITY ${cadre_compatibility})
install(FILES ${cadre_generated_dir}/cadreConfig.cmake ${cadre_generated_dir}/cadreConfigVersion.cmake
  DESTINATION ${cadre_package_dir} COMPONENT development)

# Relative to where cadre.pc lies, so that an installed tree can be moved. An absolute CMAKE_INSTALL_LIBDIR or
# CMAKE_INSTALL_INCLUDEDIR is taken as it is.
set(cadre_pc_libdir "\${prefix}/${CMAKE_INSTALL_LIBDIR}")
set(cadre_pc_includedir "\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}")
if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}")
  set(cadre_pc_prefix "${CMAKE_INSTALL_PREFIX}")
  set(cadre_pc_libdir "${CMAKE_INSTALL_LIBDIR}")
else()
  string(REGEX REPLACE "[^/]+" ".." cadre_pc_up "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
  set(cadre_pc_prefix "\${pcfiledir}/${cadre_pc_up}")
endif()
if(IS_ABSOLUTE "${CMAKE_INSTALL_INCLUDEDIR}")
  set(cadre_pc_includedir "${CMAKE_INSTALL_INCLUDEDIR}")
endif()
configure_file(${PROJECT_SOURCE_DIR}/cmake/cadre.pc.in ${cadre_generated_dir}/cadre.pc @ONLY)
install(FILES ${cadre_generated_dir}/cadre.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)
