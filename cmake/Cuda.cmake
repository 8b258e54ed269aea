# The CUDA back-end, where there is an nvcc: TROUPE_CUDA is AUTO, ON or OFF. nvcc is called here,
# not through CMake's language, which CMake 3.25 would ask for C++17 at most.
set(TROUPE_CUDA AUTO CACHE STRING "Build the CUDA back-end: AUTO (where nvcc is found), ON or OFF")
set(TROUPE_CUDA_ARCHITECTURES "" CACHE STRING "GPUs that kernels are compiled for: a list such as \
80;90a, or all; empty: those that are here, else 90a. Others compile them from PTX at the start")

if(NOT TROUPE_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "TROUPE_CUDA is '${TROUPE_CUDA}'; it may be AUTO, ON or OFF")
endif()
set(TROUPE_HAS_CUDA OFF)
if(NOT TROUPE_CUDA STREQUAL OFF)
  find_program(TROUPE_NVCC nvcc HINTS "$ENV{CUDA_HOME}/bin" /usr/local/cuda/bin)
  find_library(TROUPE_CUDART cudart_static
    HINTS "$ENV{CUDA_HOME}/lib64" /usr/local/cuda/lib64 /usr/local/cuda/targets/x86_64-linux/lib)
  find_path(TROUPE_CUDA_INCLUDES cuda_runtime_api.h
    HINTS "$ENV{CUDA_HOME}/include" /usr/local/cuda/include)
  if(TROUPE_NVCC AND TROUPE_CUDART AND TROUPE_CUDA_INCLUDES)
    set(TROUPE_HAS_CUDA ON)
  elseif(TROUPE_CUDA STREQUAL ON)
    message(FATAL_ERROR "TROUPE_CUDA is ON, but there is no nvcc, or no libcudart_static.a beside "
      "it: install the CUDA toolkit, or name it by CUDA_HOME")
  endif()
endif()
# From here on it is a list.
if(TROUPE_CUDA_ARCHITECTURES STREQUAL "all")
  set(TROUPE_CUDA_ARCHITECTURES 80 89 90a 100a 120a)
elseif(NOT TROUPE_CUDA_ARCHITECTURES AND TROUPE_HAS_CUDA)
  execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader
    OUTPUT_VARIABLE capabilities OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET
    RESULT_VARIABLE failed)
  if(failed OR NOT capabilities MATCHES "^[0-9.\n]+$")
    set(capabilities 9.0)
  endif()
  string(REGEX REPLACE "[.]" "" TROUPE_CUDA_ARCHITECTURES "${capabilities}")
  string(REGEX REPLACE "\n" ";" TROUPE_CUDA_ARCHITECTURES "${TROUPE_CUDA_ARCHITECTURES}")
  # These have instructions that only they have.
  list(TRANSFORM TROUPE_CUDA_ARCHITECTURES REPLACE "^(90|100|120)$" "\\1a")
  list(REMOVE_DUPLICATES TROUPE_CUDA_ARCHITECTURES)
endif()
# Sanitizers see nothing of a GPU; what they can see is the twin's.
if(TROUPE_SANITIZE AND TROUPE_CUDA STREQUAL AUTO)
  set(TROUPE_HAS_CUDA OFF)
endif()

# The arithmetic is the definition's (kernels/README.md): denormals are zero, nothing is fused.
set(TROUPE_NVCC_FLAGS -std=c++20 -O3 -ftz=true -fmad=false -prec-div=true -prec-sqrt=true
  --expt-relaxed-constexpr -Werror all-warnings
  -Xcompiler=-fPIC,-Wall,-Wextra,-ffp-contract=off)

# troupe_cuda_objects(VARIABLE APART... TOGETHER ...): the objects of some .cu files. Those that are
# soon compiled are compiled together: five GPUs read every header five times.
function(troupe_cuda_objects variable)
  cmake_parse_arguments(arg "" "" "APART;TOGETHER" ${ARGN})
  set(code)
  foreach(architecture ${TROUPE_CUDA_ARCHITECTURES})
    list(APPEND code -gencode "arch=compute_${architecture},code=sm_${architecture}")
  endforeach()
  # Whatever is listed: PTX of an "a" runs on no other GPU, and that of a newer one on no older.
  list(APPEND code -gencode "arch=compute_80,code=compute_80")
  set(includes)
  foreach(source ${arg_TOGETHER})
    string(APPEND includes "#include \"${CMAKE_CURRENT_SOURCE_DIR}/${source}\"\n")
  endforeach()
  set(sources ${arg_APART})
  if(arg_TOGETHER)
    set(together "${CMAKE_CURRENT_BINARY_DIR}/together.cu")
    file(CONFIGURE OUTPUT "${together}" CONTENT "${includes}" @ONLY)
    list(APPEND sources "${together}")
  endif()
  set(objects)
  foreach(source ${sources})
    get_filename_component(source "${source}" ABSOLUTE)
    get_filename_component(name "${source}" NAME)
    set(object "${CMAKE_CURRENT_BINARY_DIR}/${name}.o")
    add_custom_command(OUTPUT "${object}"
      COMMAND ${TROUPE_CCACHE} "${TROUPE_NVCC}" ${TROUPE_NVCC_FLAGS} ${code}
        -I "${PROJECT_SOURCE_DIR}" -MD -MF "${object}.d" -c "${source}" -o "${object}"
      DEPENDS "${source}"
      DEPFILE "${object}.d"
      COMMENT "Compiling ${name} for GPUs"
      VERBATIM)
    list(APPEND objects "${object}")
  endforeach()
  set(${variable} ${objects} PARENT_SCOPE)
endfunction()
