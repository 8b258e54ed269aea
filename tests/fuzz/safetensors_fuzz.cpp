// Headers of safetensors files: any bytes give a header or an error.

#include <cstdlib>

#include "model/checkpoint.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto header = troupe::parse_safetensors_header(bytes, size, "fuzz");
  if (!header) return 0;
  // What was accepted lies within the file.
  for (const auto& [name, info] : header->tensors)
    if (header->data_offset + info.offset + info.bytes > size) std::abort();
  return 0;
}
