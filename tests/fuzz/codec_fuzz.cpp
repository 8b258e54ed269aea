#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "runtime/buffer.h"
#include "transport/codec.h"

/// The first byte tells how long a payload comes with the message; what decodes must encode again.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  troupe::Payload payload;
  if (data[0] != 0) payload = troupe::Payload::of(std::make_shared<troupe::Buffer>(data[0] * 16u));
  const auto bytes = std::as_bytes(std::span(data + 1, size - 1));
  const auto envelope = troupe::transport::decode(bytes, payload);
  if (envelope.ok() && !troupe::transport::encode(*envelope).ok()) __builtin_trap();
  return 0;
}
