#include "tests/fuzz/seeds.h"

namespace troupe::fuzz {
namespace {

/// A file: the header's length as 8 bytes, little-endian, the header, the data.
std::string file(const std::string& header, std::size_t data_bytes) {
  std::string text;
  for (int byte = 0; byte < 8; ++byte)
    text.push_back(static_cast<char>(header.size() >> (8 * byte)));
  return text + header + std::string(data_bytes, '\x3f');
}

}  // namespace

std::vector<std::string> made_seeds() {
  return {file(R"({"__metadata__":{"format":"pt"},)"
               R"("a.weight":{"dtype":"BF16","shape":[2,4],"data_offsets":[0,16]},)"
               R"("b":{"dtype":"F32","shape":[3],"data_offsets":[16,28]},)"
               R"("c":{"dtype":"I64","shape":[],"data_offsets":[28,36]}})",
               36),
          file(R"({"e":{"dtype":"F8_E4M3","shape":[0,5],"data_offsets":[0,0]}}   )", 0),
          file("{}", 0)};
}

}  // namespace troupe::fuzz
