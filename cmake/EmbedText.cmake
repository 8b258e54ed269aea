# cmake -DIN=page.html -DOUT=page.cpp -DFUNCTION=console_html -DHEADER=... -P EmbedText.cmake
# Writes a C++ unit with one function that returns the text of a file. A line "// @part NAME" in it
# stands for the file of that name beside it.
file(READ "${IN}" text)
get_filename_component(folder "${IN}" DIRECTORY)
string(REGEX MATCHALL "// @part [a-z._]+\n" marks "${text}")
foreach(mark IN LISTS marks)
  string(REGEX REPLACE "// @part ([a-z._]+)\n" "\\1" name "${mark}")
  file(READ "${folder}/${name}" part)
  string(REPLACE "${mark}" "${part}" text "${text}")
endforeach()
string(FIND "${text}" ")embedded\"" found)
if(NOT found EQUAL -1)
  message(FATAL_ERROR "${IN} has the mark that ends a text: )embedded\"")
endif()
file(WRITE "${OUT}" "// Made by cmake/EmbedText.cmake; change what it was made from.
#include \"${HEADER}\"

namespace troupe {

std::string_view ${FUNCTION}() { return R\"embedded(${text})embedded\"; }

}  // namespace troupe
")
