#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "model/grammar/grammar_writer.h"

/// The bytes are a regular expression: it becomes a grammar of bounded length, or an error that
/// says something.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  troupe::GrammarWriter writer;
  const auto root = writer.regex({reinterpret_cast<const char*>(data), size});
  if (!root ? root.error().message.empty() : writer.rules().size() > (4u << 20)) std::abort();
  return 0;
}
