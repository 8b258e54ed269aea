#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "runtime/buffer.h"
#include "runtime/result.h"
#include "transport/message.h"

/// The form of messages between nodes: Cap'n Proto (transport/schema). `decode` is the one place
/// where bytes of a peer become structs; nothing behind it checks them again.
namespace troupe::transport {

/// The Cap'n Proto form of an envelope, segment table first; a multiple of 8 bytes. The bytes of a
/// Payload are left out: the bulk lane carries them beside this header.
/// Errors: kInvalidArgument (something that `decode` would not take), kResourceExhausted (longer
/// than limits::kBulkHeaderBytesMax).
Result<std::vector<std::byte>> encode(const Envelope& envelope);

/// Reads and validates what `encode` wrote: enums, ranges, text, sizes, and `payload` against the
/// rows or pairs that the header tells. Messages without a payload refuse one. Never crashes, and
/// allocates in proportion to `bytes`, whatever they hold; they need not be aligned.
/// Errors: kCorrupt with a sentence that says what is wrong; nothing of the message was used.
Result<Envelope> decode(std::span<const std::byte> bytes, Payload payload = {});

/// The tensor that goes beside a message; null for the kinds that carry none.
const Payload* payload_of(const Message& message);

}  // namespace troupe::transport
