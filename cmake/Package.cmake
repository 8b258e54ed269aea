# The packages that tools/package makes, by CPack: a .deb, whose libraries are Debian's, and an
# archive that may lie in any folder, with its libraries beside it. Neither has the headers and the
# static libraries of `cmake --install`.
set(TROUPE_PACKAGE_DOCS "${CMAKE_INSTALL_DATAROOTDIR}/doc/troupe")

# What both have. `systemctl enable` reads units where they are linked to.
foreach(component deb archive)
  # Where README's links to them lead.
  install(FILES LICENSE NOTICE README.md ARCHITECTURE.md DESTINATION "${TROUPE_PACKAGE_DOCS}"
    COMPONENT ${component} EXCLUDE_FROM_ALL)
  install(FILES actors/gateway/API.md DESTINATION "${TROUPE_PACKAGE_DOCS}/actors/gateway"
    COMPONENT ${component} EXCLUDE_FROM_ALL)
  install(FILES configs/deploy/systemd/troupe-head.service
                configs/deploy/systemd/troupe-worker.service
    DESTINATION lib/systemd/system COMPONENT ${component} EXCLUDE_FROM_ALL)
  install(DIRECTORY configs DESTINATION "${TROUPE_PACKAGE_DOCS}" COMPONENT ${component}
    EXCLUDE_FROM_ALL PATTERN systemd EXCLUDE)
endforeach()

# The .deb: as installed, without a search path.
install(TARGETS troupe RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT deb
  EXCLUDE_FROM_ALL)
install(FILES cmake/debian/copyright DESTINATION "${TROUPE_PACKAGE_DOCS}" COMPONENT deb
  EXCLUDE_FROM_ALL)

# The archive: as built, with lib/troupe beside bin/ as its search path. An old-style one
# (DT_RPATH) holds for libraries of libraries too.
set_target_properties(troupe PROPERTIES BUILD_RPATH "$ORIGIN/../lib/troupe")
target_link_options(troupe PRIVATE -Wl,--disable-new-dtags)
install(PROGRAMS "$<TARGET_FILE:troupe>" DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT archive
  EXCLUDE_FROM_ALL)
# All but the C and C++ runtimes, which every system has, and must be one for all that a process
# loads. libfabric, NCCL and the GPU's driver are loaded when the program runs: they belong to the
# machine's network and GPUs.
install(CODE "
  execute_process(COMMAND \"${CMAKE_STRIP}\" \"\${CMAKE_INSTALL_PREFIX}/bin/troupe\")
  # What CMake appends is an empty path, which means the folder that the program is started in.
  file(RPATH_CHANGE FILE \"\${CMAKE_INSTALL_PREFIX}/bin/troupe\"
    OLD_RPATH [[$ORIGIN/../lib/troupe:]] NEW_RPATH [[$ORIGIN/../lib/troupe]])
  file(GET_RUNTIME_DEPENDENCIES EXECUTABLES \"$<TARGET_FILE:troupe>\"
    RESOLVED_DEPENDENCIES_VAR libraries
    PRE_EXCLUDE_REGEXES
      \"^(ld-linux|libc|libm|libdl|librt|libpthread|libstdc\\\\+\\\\+|libgcc_s)[-.].*\")
  foreach(library IN LISTS libraries)
    get_filename_component(real \"\${library}\" REALPATH)
    get_filename_component(name \"\${library}\" NAME)
    file(INSTALL \"\${real}\" DESTINATION \"\${CMAKE_INSTALL_PREFIX}/lib/troupe\"
      RENAME \"\${name}\")
  endforeach()" COMPONENT archive EXCLUDE_FROM_ALL)

set(CPACK_PACKAGE_NAME troupe)
set(CPACK_PACKAGE_VENDOR "Troupe")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Serves mixture-of-experts language models over a cluster")
set(CPACK_PACKAGE_DESCRIPTION "Head, workers and tools in one program.
A worker may die at any moment: no request is lost, and no token
changes. The OpenAI API stands in front.")
set(CPACK_PACKAGE_DIRECTORY "${PROJECT_BINARY_DIR}/packages")
set(CPACK_STRIP_FILES ON)
set(CPACK_THREADS 0)  # as many compressors as processors
set(CPACK_PROJECT_CONFIG_FILE "${PROJECT_SOURCE_DIR}/cmake/PackageOptions.cmake")
set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_MAINTAINER "Troupe <troupe@localhost>")
set(CPACK_DEBIAN_PACKAGE_SECTION misc)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# Loaded when a worker starts: dpkg-shlibdeps does not see it.
set(CPACK_DEBIAN_PACKAGE_DEPENDS libfabric1)

set(CPACK_ARCHIVE_COMPONENT_INSTALL ON)
set(CPACK_SYSTEM_NAME "linux-${CMAKE_SYSTEM_PROCESSOR}")
include(CPack)
