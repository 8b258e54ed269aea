// What stands before the tensors of a GGUF file: any bytes give a header, and a model or an error.

#include <cstdlib>

#include "model/gguf/gguf.h"
#include "model/gguf/gguf_spec.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto header = troupe::parse_gguf(bytes, size, "fuzz");
  if (!header) return 0;
  // What was accepted lies within the file.
  for (const auto& [name, info] : header->tensors)
    if (header->data_offset + info.offset + info.bytes > size) std::abort();
  (void)troupe::gguf_spec(*header, "fuzz");
  return 0;
}
