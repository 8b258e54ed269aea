#include "runtime/dtype.h"

#include <array>

namespace troupe {
namespace {

struct Entry {
  std::string_view name;
  std::size_t size;
};

/// By DType.
constexpr std::array<Entry, 16> kEntries = {{{"BOOL", 1},
                                             {"U8", 1},
                                             {"I8", 1},
                                             {"F8_E4M3", 1},
                                             {"F8_E5M2", 1},
                                             {"F8_E8M0", 1},
                                             {"I16", 2},
                                             {"U16", 2},
                                             {"F16", 2},
                                             {"BF16", 2},
                                             {"I32", 4},
                                             {"U32", 4},
                                             {"F32", 4},
                                             {"I64", 8},
                                             {"U64", 8},
                                             {"F64", 8}}};

}  // namespace

std::size_t dtype_size(DType dtype) { return kEntries[static_cast<std::size_t>(dtype)].size; }

std::string_view to_string(DType dtype) { return kEntries[static_cast<std::size_t>(dtype)].name; }

std::optional<DType> parse_dtype(std::string_view name) {
  for (std::size_t i = 0; i < kEntries.size(); ++i)
    if (kEntries[i].name == name) return static_cast<DType>(i);
  return std::nullopt;
}

}  // namespace troupe
