#include "transport/codec.h"

#include <capnp/serialize.h>
#include <kj/exception.h>

#include <algorithm>
#include <cassert>
#include <cstring>

#include "transport/codec_parts.h"

namespace troupe::transport {
namespace {

/// One overload a kind: opens the envelope's union at it.
#define TROUPE_CODEC_PUT_KIND(Kind, TAG)                                       \
  void put_kind(Out& out, wire::Envelope::Builder wire, const Kind& message) { \
    put(out, wire.init##Kind(), message);                                      \
  }
TROUPE_CODEC_KINDS(TROUPE_CODEC_PUT_KIND)
#undef TROUPE_CODEC_PUT_KIND

/// The message in the envelope; null if this program does not know its kind.
MessagePtr get_kind(In& in, wire::Envelope::Reader wire) {
  switch (wire.which()) {
    case wire::Envelope::NONE:
    case wire::Envelope::PEER_PING:  // of older programs
      break;
#define TROUPE_CODEC_GET_KIND(Kind, TAG) \
  case wire::Envelope::TAG:              \
    return message_of(get(in, wire.get##Kind()));
      TROUPE_CODEC_KINDS(TROUPE_CODEC_GET_KIND)
#undef TROUPE_CODEC_GET_KIND
  }
  in.fail("its kind (" + std::to_string(static_cast<unsigned>(wire.which())) +
          ") is not one that this version knows");
  return nullptr;
}

Error broken(const std::string& reason) {
  return corrupt("A message breaks its format: " + reason + ".");
}

Result<Envelope> decode_words(kj::ArrayPtr<const capnp::word> words, const Payload& payload) {
  capnp::ReaderOptions options;
  // Every word is read once, some lists' headers twice; pointers that share their target add up.
  options.traversalLimitInWords = 2 * words.size() + 64;
  options.nestingLimit = 16;
  capnp::FlatArrayMessageReader reader(words, options);
  if (reader.getEnd() != words.end()) return broken("bytes follow its end");

  In in(words.size() * sizeof(capnp::word), payload);
  const auto wire = reader.getRoot<wire::Envelope>();
  Envelope envelope;
  envelope.from = get(in, wire.getFrom());
  envelope.to = get(in, wire.getTo());
  envelope.message = get_kind(in, wire);
  if (!in.ok()) return broken(*in.fault());
  if (!payload.empty() && !payload_of(*envelope.message))
    return broken("a payload came with a message that has none");
  return envelope;
}

}  // namespace

void put(Out& out, wire::Undeliverable::Builder wire, const Undeliverable& message) {
  put(out, wire.initTo(), message.to);
  wire.setKind(message.kind);
  wire.setReference(message.reference);
  put(out, wire.initError(), message.error);
}

Undeliverable get(In& in, wire::Undeliverable::Reader wire) {
  return {get(in, wire.getTo()), wire.getKind(), wire.getReference(), get(in, wire.getError())};
}

Result<std::vector<std::byte>> encode(const Envelope& envelope) {
  assert(envelope.message);
  try {
    Out out;
    capnp::MallocMessageBuilder builder;
    auto wire = builder.initRoot<wire::Envelope>();
    put(out, wire.initFrom(), envelope.from);
    put(out, wire.initTo(), envelope.to);
    std::visit([&](const auto& message) { put_kind(out, wire, message); }, *envelope.message);
    if (out.fault()) return invalid_argument("A message cannot be sent: " + *out.fault() + ".");

    return serialize(builder, limits::kBulkHeaderBytesMax, "A message", "sent");
  } catch (const kj::Exception& exception) {
    return resource_exhausted("A message cannot be sent: " + describe(exception) + ".");
  }
}

Result<Envelope> decode(std::span<const std::byte> bytes, Payload payload) {
  if (bytes.size() > limits::kBulkHeaderBytesMax) return broken("it is too long");
  if (bytes.size() % sizeof(capnp::word) != 0) return broken("its length is no multiple of 8");
  const std::size_t words = bytes.size() / sizeof(capnp::word);
  try {
    if (reinterpret_cast<std::uintptr_t>(bytes.data()) % alignof(capnp::word) == 0)
      return decode_words({reinterpret_cast<const capnp::word*>(bytes.data()), words}, payload);
    auto aligned = kj::heapArray<capnp::word>(words);
    std::memcpy(aligned.begin(), bytes.data(), bytes.size());
    return decode_words(aligned, payload);
  } catch (const kj::Exception& exception) {
    return broken(describe(exception));
  }
}

const Payload* payload_of(const Message& message) {
  if (const auto* hidden = std::get_if<Hidden>(&message)) return &hidden->payload;
  if (const auto* dispatch = std::get_if<Dispatch>(&message)) return &dispatch->payload;
  if (const auto* output = std::get_if<ExpertOutput>(&message)) return &output->payload;
  if (const auto* part = std::get_if<RankPart>(&message)) return &part->payload;
  if (const auto* probe = std::get_if<LinkProbe>(&message)) return &probe->payload;
  if (const auto* echo = std::get_if<LinkEcho>(&message)) return &echo->payload;
  return nullptr;
}

}  // namespace troupe::transport

std::uint32_t troupe::protocol_of(const Message& message) {
  std::uint32_t protocol = since(message);
  if (const auto* copy = std::get_if<JournalCopy>(&message))
    for (const JournalRecord& record : copy->records) protocol = std::max(protocol, since(record));
  return protocol;
}
