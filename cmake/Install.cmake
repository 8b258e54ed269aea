# `cmake --install`: the command, the libraries, the public headers, and the package that
# find_package(Troupe) finds. A program that embeds Troupe links Troupe::troupe and includes
# "actors/api/cluster.h" (and "actors/api/caf.h" for actors of its own).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(TROUPE_PACKAGE_DIR "${CMAKE_INSTALL_LIBDIR}/cmake/Troupe")

# Static libraries need all those that they were linked with: every one is exported.
function(troupe_install_library name)
  install(TARGETS ${name} EXPORT TroupeTargets
    ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}/troupe")
endfunction()

function(troupe_install_package)
  install(TARGETS troupe RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
  # The public headers, and what they include.
  install(FILES actors/api/caf.h actors/api/cluster.h DESTINATION include/troupe/actors/api)
  install(FILES actors/frontend/generation_service.h DESTINATION include/troupe/actors/frontend)
  install(DIRECTORY runtime/ DESTINATION include/troupe/runtime FILES_MATCHING PATTERN "*.h")
  install(EXPORT TroupeTargets NAMESPACE Troupe:: DESTINATION "${TROUPE_PACKAGE_DIR}")
  configure_package_config_file(cmake/TroupeConfig.cmake.in
    "${PROJECT_BINARY_DIR}/TroupeConfig.cmake" INSTALL_DESTINATION "${TROUPE_PACKAGE_DIR}")
  # Before 1.0 a new minor version may change the API.
  write_basic_package_version_file("${PROJECT_BINARY_DIR}/TroupeConfigVersion.cmake"
    COMPATIBILITY SameMinorVersion)
  install(FILES "${PROJECT_BINARY_DIR}/TroupeConfig.cmake"
    "${PROJECT_BINARY_DIR}/TroupeConfigVersion.cmake" cmake/FindCAF.cmake
    DESTINATION "${TROUPE_PACKAGE_DIR}")
  install(FILES LICENSE NOTICE DESTINATION "${CMAKE_INSTALL_DOCDIR}")
endfunction()
