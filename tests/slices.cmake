# The sanitised tests in eight slices, of which continuous integration runs another each day: each
# takes some four minutes to build and run, on two cores. By folder below tests/, the first that
# fits; fuzz targets by their names. Slice 0 is never run by itself: it needs all of the product,
# which takes longer than that.
set(TROUPE_SLICES
  "0:actors/api"
  "1:runtime|kernels"
  "2:model|fuzz_(chat_|config|gguf|grammar|jinja|json_|regex|safetensors|tokenizer|tool_calls)"
  "3:transport|actors/(control|metrics)|tools|fuzz_(bench_|codec|enrolment|join_|repo_)"
  "4:actors/(gateway|frontend|router)|fuzz_(http_body|journal)"
  "5:actors/(base|device|expert_group|layer_shard|replica)"
  "6:actors/(supervisor|head|standby|node_agent)"
  "7:sim"
  "8:actors/worker")
foreach(slice RANGE 0 8)
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
    set(slice slice_${CMAKE_MATCH_1})
    if(folder MATCHES "^(${CMAKE_MATCH_2})")
      set(${variable} ${slice} PARENT_SCOPE)
      return()
    endif()
  endforeach()
  message(FATAL_ERROR "tests/${folder} is in none of the slices of tests/slices.cmake")
endfunction()
