#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "model/grammar/compiled_grammar.h"
#include "model/grammar/grammar_writer.h"

/// The bytes are a JSON schema. Whatever it says, a grammar of bounded length is written, or an
/// error that says something.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  troupe::GrammarWriter writer;
  const auto root = writer.json_schema({reinterpret_cast<const char*>(data), size});
  if (!root) {
    if (root.error().message.empty() || root.error().message.size() > (1u << 20)) std::abort();
    return 0;
  }
  if (std::move(writer).finish(*root).size() > troupe::CompiledGrammar::kTextBytesMax + (1u << 16))
    std::abort();
  return 0;
}
