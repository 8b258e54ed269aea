# The sanitised tests in nine slices, of which continuous integration runs another each day: each
# takes at most four minutes to build and run, on two cores. By folder below tests/, the first that
# fits; fuzz targets by their names.
set(TROUPE_SLICES
  "1:runtime|kernels"
  "2:model|fuzz_(chat_|config|gguf|grammar|json_|regex|safetensors|tokenizer|tool_calls)"
  "3:transport|actors/(control|metrics)|tools/(chat|console|http|plan)|fuzz_(codec|enrolment|join_|repo_)"
  "4:actors/(gateway|frontend|router)|fuzz_(http_body|journal)"
  "5:actors/(base|device|expert_group|layer_shard|replica)"
  "6:actors/(supervisor|head|standby|node_agent)"
  "7:sim"
  "8:actors/worker"
  "9:actors/api|tools|fuzz")
foreach(slice RANGE 1 9)
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
