# The sanitised tests in eight slices, of which continuous integration runs another each day: each
# takes some four minutes to build and run, on two cores. By folder below tests/, the first that
# fits; fuzz targets by their names.
set(TROUPE_SLICES
  "1:kernels|runtime"
  "2:model/(grammar|jinja|tokenizer)|fuzz_(grammar|json_|regex|chat_|tokenizer|tool_calls)"
  "3:model|fuzz_(config|gguf|safetensors)"
  "4:transport|actors/control|fuzz_(codec|enrolment|join_file)"
  "5:actors/(gateway|frontend|router|metrics)|fuzz_(http_body|journal)"
  "6:actors/(supervisor|head|standby|node_agent)|sim"
  "7:actors/(worker|api)|embedding"
  "8:actors|tools|fuzz")
foreach(slice 1 2 3 4 5 6 7 8)
  add_custom_target(slice_${slice})
endforeach()

# troupe_slice(VARIABLE NAME): the slice of a test program, by the calling folder or its name.
function(troupe_slice variable name)
  file(RELATIVE_PATH folder "${PROJECT_SOURCE_DIR}/tests" "${CMAKE_CURRENT_SOURCE_DIR}")
  if(folder STREQUAL "fuzz")
    set(folder ${name})
  endif()
  foreach(row ${TROUPE_SLICES})
    string(REGEX MATCH "^([0-9]):(.*)$" row "${row}")
    if(folder MATCHES "^(${CMAKE_MATCH_2})")
      string(REGEX MATCH "^[0-9]" number "${row}")
      set(${variable} slice_${number} PARENT_SCOPE)
      return()
    endif()
  endforeach()
  message(FATAL_ERROR "tests/${folder} is in none of the slices of tests/slices.cmake")
endfunction()
