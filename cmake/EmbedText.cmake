# cmake -DIN=page.html -DOUT=page.cpp -DFUNCTION=console_html -DHEADER=... -P EmbedText.cmake
# Writes a C++ unit with one function that returns the text of a file.
file(READ "${IN}" text)
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
