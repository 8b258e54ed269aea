# CAF 0.17 as Debian ships it, without a CMake package of its own. Targets: caf::core, caf::io.
find_path(CAF_INCLUDE_DIR caf/actor_system.hpp)
find_library(CAF_CORE_LIBRARY caf_core)
find_library(CAF_IO_LIBRARY caf_io)
mark_as_advanced(CAF_INCLUDE_DIR CAF_CORE_LIBRARY CAF_IO_LIBRARY)

if(CAF_INCLUDE_DIR)
  file(STRINGS "${CAF_INCLUDE_DIR}/caf/config.hpp" caf_version_line
    REGEX "#define CAF_VERSION [0-9]+")
  if(caf_version_line MATCHES "CAF_VERSION ([0-9]+)")
    math(EXPR caf_major "${CMAKE_MATCH_1} / 10000")
    math(EXPR caf_minor "${CMAKE_MATCH_1} / 100 % 100")
    math(EXPR caf_patch "${CMAKE_MATCH_1} % 100")
    set(CAF_VERSION "${caf_major}.${caf_minor}.${caf_patch}")
  endif()
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(CAF
  REQUIRED_VARS CAF_CORE_LIBRARY CAF_IO_LIBRARY CAF_INCLUDE_DIR
  VERSION_VAR CAF_VERSION)

if(CAF_FOUND AND NOT TARGET caf::core)
  find_package(Threads REQUIRED)
  add_library(caf::core UNKNOWN IMPORTED GLOBAL)
  set_target_properties(caf::core PROPERTIES
    IMPORTED_LOCATION "${CAF_CORE_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${CAF_INCLUDE_DIR}"
    INTERFACE_LINK_LIBRARIES Threads::Threads)
  add_library(caf::io UNKNOWN IMPORTED GLOBAL)
  set_target_properties(caf::io PROPERTIES
    IMPORTED_LOCATION "${CAF_IO_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${CAF_INCLUDE_DIR}"
    INTERFACE_LINK_LIBRARIES caf::core)
endif()
