// What stands before the tensors of a GGUF file: any bytes give a header, and a model, a vocabulary
// and a chat template, or errors.

#include <cstdlib>

#include "model/gguf/gguf.h"
#include "model/gguf/gguf_spec.h"
#include "model/tokenizer/gguf_text.h"
#include "model/tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto header = troupe::parse_gguf(bytes, size, "fuzz");
  if (!header) return 0;
  // What was accepted lies within the file.
  for (const auto& [name, info] : header->tensors)
    if (header->data_offset + info.offset + info.bytes > size) std::abort();
  (void)troupe::gguf_spec(*header, "fuzz");
  (void)troupe::gguf_chat_template(*header);
  if (const auto vocabulary = troupe::gguf_vocabulary(*header))
    (void)troupe::Tokenizer::from_gguf(*vocabulary);
  return 0;
}
