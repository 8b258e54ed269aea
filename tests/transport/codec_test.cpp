#include "transport/codec.h"

#include <capnp/dynamic.h>
#include <capnp/message.h>
#include <capnp/serialize.h>
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <set>

#include "runtime/limits.h"
#include "schema/envelope.capnp.h"
#include "tests/transport/message_samples.h"
#include "transport/journal_records.h"

using namespace troupe;
using transport::decode;
using transport::encode;

namespace {

Payload payload_of(const Envelope& envelope) {
  const Payload* payload = transport::payload_of(*envelope.message);
  return payload ? *payload : Payload{};
}

std::vector<std::byte> encoded(const Envelope& envelope) {
  auto bytes = encode(envelope);
  REQUIRE_MESSAGE(bytes.ok(), bytes.error().message);
  return std::move(bytes).value();
}

/// What `decode` says to a message that `encode` itself lets pass.
std::string refusal(Message message, Payload payload = {}) {
  const auto bytes = encoded({{}, {}, message_of(std::move(message))});
  const auto decoded = decode(bytes, std::move(payload));
  if (decoded.ok()) return "";
  CHECK(decoded.error().code == ErrorCode::kCorrupt);
  return decoded.error().message;
}

/// The names of all fields under `value`, and of those that differ from their default somewhere.
void note_fields(capnp::DynamicStruct::Reader value, std::set<std::string>& seen,
                 std::set<std::string>& written) {
  const std::string type = value.getSchema().getProto().getDisplayName().cStr();
  const auto note = [&](capnp::StructSchema::Field field) {
    const std::string name = type + "." + field.getProto().getName().cStr();
    seen.insert(name);
    if (value.has(field, capnp::HasMode::NON_DEFAULT)) written.insert(name);
    const auto content = value.get(field);
    if (content.getType() == capnp::DynamicValue::STRUCT) {
      written.insert(name);
      note_fields(content.as<capnp::DynamicStruct>(), seen, written);
    } else if (content.getType() == capnp::DynamicValue::LIST) {
      for (auto element : content.as<capnp::DynamicList>())
        if (element.getType() == capnp::DynamicValue::STRUCT)
          note_fields(element.as<capnp::DynamicStruct>(), seen, written);
    }
  };
  for (auto field : value.getSchema().getNonUnionFields()) note(field);
  KJ_IF_MAYBE (field, value.which()) {
    note(*field);
    if (field->getProto().getName() == "none") written.insert(type + ".none");
  }
}

Payload zeros(std::size_t bytes) { return Payload::of(std::make_shared<Buffer>(bytes)); }

}  // namespace

TEST_CASE("every kind of message survives its way over the wire") {
  std::set<std::size_t> kinds;
  for (const Envelope& sample : message_samples()) {
    CAPTURE(sample.message->index());
    kinds.insert(sample.message->index());
    const auto bytes = encoded(sample);
    const auto decoded = decode(bytes, payload_of(sample));
    REQUIRE_MESSAGE(decoded.ok(), decoded.error().message);
    CHECK(decoded->from == sample.from);
    CHECK(decoded->to == sample.to);
    REQUIRE(decoded->message->index() == sample.message->index());
    // The form is canonical: equal bytes mean that no field was lost on the way back; the next test
    // shows that none was lost on the way there.
    CHECK(encoded(*decoded) == bytes);
    CHECK(payload_of(*decoded).bytes.data() == payload_of(sample).bytes.data());
  }
  CHECK(kinds.size() == std::variant_size_v<Message>);
}

TEST_CASE("a kind that came later says with which protocol") {
  const auto known_to_all = []<class... Kinds>(const std::variant<Kinds...>*) {
    return ((kSince<Kinds> == 0 ? 1 : 0) + ...);
  };
  // As of protocol 6. Another kind has a kSince: who speaks an older protocol is not sent it.
  CHECK(known_to_all(static_cast<const Message*>(nullptr)) == 80);
  CHECK(known_to_all(static_cast<const JournalRecord*>(nullptr)) == 8);
}

TEST_CASE("every field of the schema is written") {
  std::set<std::string> seen, written;
  for (const Envelope& sample : message_samples()) {
    const auto bytes = encoded(sample);
    capnp::FlatArrayMessageReader reader(
        {reinterpret_cast<const capnp::word*>(bytes.data()), bytes.size() / sizeof(capnp::word)});
    note_fields(reader.getRoot<wire::Envelope>(), seen, written);
  }
  for (const std::string& field : seen) CHECK_MESSAGE(written.count(field) == 1, field);
  CHECK(seen.size() > 150);
}

TEST_CASE("fields arrive under their own names") {
  const auto pass = [](const Message& message) {
    for (const Envelope& sample : message_samples())
      if (sample.message->index() == message.index()) {
        auto decoded = decode(encoded(sample), payload_of(sample));
        REQUIRE(decoded.ok());
        return std::pair(sample.message, decoded->message);
      }
    FAIL("no sample");
    return std::pair<MessagePtr, MessagePtr>();
  };
  {
    const auto [sent, got] = pass(Load{});
    CHECK(std::get<Load>(*sent).placement == std::get<Load>(*got).placement);
    CHECK(std::get<Load>(*got).peers[0].token == std::get<Load>(*sent).peers[0].token);
    const EngineOptions& engine = std::get<Load>(*got).engine;
    CHECK(engine.max_model_len == 163840);
    CHECK(engine.block_size == 32);
    CHECK(engine.seed == 42u);
    CHECK(engine.numerics == Numerics::kBf16);
    CHECK(engine.pipeline_parallel_size == 3);
  }
  {
    const auto [sent, got] = pass(StepPlan{});
    CHECK(std::get<StepPlan>(*sent).body == std::get<StepPlan>(*got).body);
  }
  {
    const auto [sent, got] = pass(StepResult{});
    CHECK(std::get<StepResult>(*sent).sequences == std::get<StepResult>(*got).sequences);
  }
  {
    const auto [sent, got] = pass(Submit{});
    CHECK(std::get<Submit>(*sent).sampling == std::get<Submit>(*got).sampling);
    CHECK(std::get<Submit>(*got).output == std::vector<TokenId>{4, 5});
  }
  {
    const auto [sent, got] = pass(Dispatch{});
    CHECK(std::get<Dispatch>(*sent).pairs == std::get<Dispatch>(*got).pairs);
  }
}

TEST_CASE("a message cut anywhere is an error") {
  for (const Envelope& sample : message_samples()) {
    const auto bytes = encoded(sample);
    for (std::size_t length = 0; length < bytes.size(); ++length) {
      const auto decoded = decode(std::span(bytes).first(length), payload_of(sample));
      CHECK_MESSAGE(!decoded.ok(), sample.message->index() << " at " << length);
    }
    auto longer = bytes;
    longer.resize(longer.size() + 8);
    CHECK(!decode(longer, payload_of(sample)).ok());
  }
}

TEST_CASE("flipped bits give an error or a valid message") {
  std::mt19937_64 random(20240711);
  const auto samples = message_samples();
  std::vector<std::vector<std::byte>> good;
  for (const Envelope& sample : samples) good.push_back(encoded(sample));
  int refused = 0;
  for (int i = 0; i < 20000; ++i) {
    const std::size_t which = random() % samples.size();
    auto bytes = good[which];
    for (auto flips = 1 + random() % 4; flips > 0; --flips)
      bytes[random() % bytes.size()] ^= static_cast<std::byte>(1u << random() % 8);
    const auto decoded = decode(bytes, payload_of(samples[which]));
    if (!decoded.ok()) {
      ++refused;
      CHECK(decoded.error().code == ErrorCode::kCorrupt);
    } else {
      CHECK(encode(*decoded).ok());
    }
  }
  CHECK(refused > 5000);
  CHECK(refused < 20000);
}

TEST_CASE("random bytes are an error") {
  std::mt19937_64 random(7);
  for (int i = 0; i < 20000; ++i) {
    std::vector<std::byte> bytes(8 * (random() % 64));
    for (auto& byte : bytes) byte = static_cast<std::byte>(random());
    if (bytes.size() >= 8 && i % 2 == 0) {  // one segment of the right length
      const std::uint32_t table[2] = {0, static_cast<std::uint32_t>(bytes.size() / 8 - 1)};
      std::memcpy(bytes.data(), table, sizeof table);
    }
    CHECK(!decode(bytes).ok());
  }
}

TEST_CASE("bytes need no alignment") {
  for (const Envelope& sample : message_samples()) {
    const auto bytes = encoded(sample);
    std::vector<std::byte> shifted(bytes.size() + 3);
    std::copy(bytes.begin(), bytes.end(), shifted.begin() + 3);
    CHECK(decode(std::span(shifted).subspan(3), payload_of(sample)).ok());
  }
}

TEST_CASE("a kind that a newer program added is named") {
  auto bytes = encoded({{}, {}, message_of(Subscribe{})});
  // The union's discriminant is the only 16-bit field that tells Subscribe from StatusQuery.
  const auto other = encoded({{}, {}, message_of(StatusQuery{})});
  std::size_t at = 8;
  while (bytes[at] == other[at]) ++at;
  bytes[at] = std::byte{200};
  const auto decoded = decode(bytes);
  REQUIRE(!decoded.ok());
  CHECK(decoded.error().message.find("(200)") != std::string::npos);
}

TEST_CASE("a list that claims more than the message holds takes no memory") {
  capnp::MallocMessageBuilder builder;
  auto envelope = builder.initRoot<wire::Envelope>();
  // Cap'n Proto lets a list of empty structs claim any length in no bytes.
  auto events = envelope.initSequenceEvents();
  auto pointers = capnp::toAny(events).getPointerSection();
  pointers[0].initAs<capnp::List<capnp::Void>>(1u << 28);
  const auto flat = capnp::messageToFlatArray(builder);
  const auto bytes = flat.asBytes();
  CHECK(!decode(std::as_bytes(std::span(bytes.begin(), bytes.size()))).ok());
}

TEST_CASE("values that make no sense are refused") {
  SamplingParams nan, hot, wide;
  nan.temperature = std::nanf("");
  hot.temperature = -1;
  wide.top_p = 0;
  CHECK(refusal(Submit{SequenceId{1}, 0, {1}, {}, nan, 1, {}, -1}) != "");
  CHECK(refusal(Submit{SequenceId{1}, 0, {1}, {}, hot, 1, {}, -1}) != "");
  CHECK(refusal(Submit{SequenceId{1}, 0, {1}, {}, wide, 1, {}, -1}) != "");
  CHECK(refusal(Submit{SequenceId{1}, 0, {}, {}, {}, 1, {}, -1}) != "");
  CHECK(refusal(Submit{SequenceId{1}, 0, {-5}, {}, {}, 1, {}, -1}) != "");
  CHECK(refusal(Submit{SequenceId{1}, 0, {1}, {}, {}, 1, {}, -1}) == "");

  CHECK(refusal(Welcome{kHeadNode, Incarnation{1}, 1200}) != "");
  CHECK(refusal(Welcome{NodeId{1}, Incarnation{1}, 1200, 0}) == "");
  CHECK(refusal(Welcome{NodeId{1}, Incarnation{1}, 1200, 40'000'000}) != "");
  CHECK(refusal(Renew{1, {{1, std::nanf(""), 0, ""}}, {}}) != "");
  CHECK(refusal(Renew{1, {{1, 1.5f, 0, ""}}, {}}) != "");
  CHECK(refusal(LoadProgress{PlacementVersion{1}, 2, 1}) != "");
  CHECK(refusal(ClientHello{{3, 2}, "x"}) != "");
  CHECK(refusal(StopReply{1, {-1}}) != "");
  SequenceEvent event;
  event.tokens = {{1, std::nanf(""), {}}};
  CHECK(refusal(SequenceEvents{0, {event}}) != "");

  const StepSequence rowless{SequenceId{1}, {0}, 0, {}, 1, {}, true, false, {}};
  const StepSequence targetless{SequenceId{1}, {0}, 0, {1}, 1, {}, true, true, {}};
  const StepSequence beyond{SequenceId{1}, {0}, 0x7fffffff, {1}, 1, {}, true, false, {}};
  StepSequence tableless{SequenceId{1}, {}, 0, {1}, 1, {}, true, false, {}};
  StepSequence slotless = beyond, baseless = beyond;
  slotless.first_position = baseless.first_position = 0;
  CHECK(refusal(StepPlan{0, PlacementVersion{1}, {StepId{1}, {slotless}}}) == "");
  slotless.table_slot = limits::kStepSequencesMax;
  baseless.table_base = -1;
  for (const auto& sequence : {rowless, targetless, beyond, tableless, slotless, baseless})
    CHECK(refusal(StepPlan{0, PlacementVersion{1}, {StepId{1}, {sequence}}}) != "");

  Load load;
  load.engine.max_model_len = 100;
  CHECK(refusal(load) == "");
  load.placement.shards = {{0, 0, 0, 5, 4, {}}};
  CHECK(refusal(load) != "");
  load.placement.shards = {{0, 1, 0, 0, 1, {}}, {0, 0, 0, 2, 3, {}}};
  CHECK(refusal(load) != "");
  load.engine.tensor_parallel_size = 3;
  load.placement.shards = {};
  CHECK(refusal(load) != "");
  load.engine.tensor_parallel_size = 2;
  load.placement.shards = {{0, 0, 0, 0, 1, {}}, {0, 0, 1, 0, 1, {}}};
  CHECK(refusal(load) == "");
  const std::vector<std::vector<ShardPlacement>> without_all_ranks = {
      {{0, 0, 0, 0, 1, {}}},
      {{0, 0, 0, 0, 1, {}}, {0, 0, 2, 0, 1, {}}},
      {{0, 0, 0, 0, 1, {}}, {0, 0, 1, 0, 2, {}}},
      {{0, 0, 0, 0, 1, {}}, {0, 1, 1, 0, 1, {}}},
      {{0, 0, 0, 0, 1, {}}, {1, 0, 1, 0, 1, {}}},
      {{0, 0, 0, 0, 1, {}}, {0, 0, 1, 0, 1, {}}, {0, 1, 0, 2, 3, {}}},
  };
  for (const auto& shards : without_all_ranks) {
    load.placement.shards = shards;
    CHECK(refusal(load) != "");
  }
}

TEST_CASE("a payload must match its rows") {
  CHECK(refusal(Hidden{0, StepId{1}, 4, {}}, zeros(4 * 64)) == "");
  CHECK(refusal(Hidden{0, StepId{1}, 4, {}}, zeros(4 * 64 + 2)) != "");
  CHECK(refusal(Hidden{0, StepId{1}, 4, {}}) != "");
  CHECK(refusal(Hidden{0, StepId{1}, 0, {}}, zeros(64)) != "");
  CHECK(refusal(Hidden{0, StepId{1}, 0xFFFFFFFF, {}}, zeros(64)) != "");
  CHECK(refusal(ExpertOutput{0, 3, {}}, zeros(3 * 32)) == "");
  CHECK(refusal(ExpertOutput{0, 3, {}}, zeros(3 * 32 + 1)) != "");
  CHECK(refusal(Dispatch{0, PlacementVersion{1}, 0, 2, {{2, 0}}, {}}, zeros(64)) != "");
  CHECK(refusal(Dispatch{0, PlacementVersion{1}, 0, 2, {{1, 1 << 20}}, {}}, zeros(64)) != "");
  CHECK(refusal(Subscribe{}, zeros(64)) != "");
}

TEST_CASE("text is UTF-8; explanations are repaired rather than lost") {
  CHECK(!encode({{}, {}, message_of(ClientHello{{1, 1}, "\xFF"})}).ok());
  CHECK(!encode({{}, {}, message_of(ClientHello{{1, 1}, std::string(5000, 'x')})}).ok());
  CHECK(!encode({{}, {}, message_of(ClientHello{{1, 1}, std::string("a\0b", 3)})}).ok());

  const auto bytes =
      encoded({{}, {}, message_of(Leave{"no file \xC0\x80" + std::string(70000, 'x')})});
  const auto decoded = decode(bytes);
  REQUIRE(decoded.ok());
  const std::string& reason = std::get<Leave>(*decoded->message).reason;
  CHECK(reason.substr(0, 12) == "no file ??xx");
  CHECK(reason.size() == 65536);

  auto broken = encoded({{}, {}, message_of(Leave{"hello"})});
  for (auto& byte : broken)
    if (byte == std::byte{'h'}) byte = std::byte{0xC3};
  CHECK(!decode(broken).ok());
}

TEST_CASE("a message longer than a frame is refused by its sender") {
  const Submit submit{SequenceId{1}, 0, std::vector<TokenId>(5u << 20, 1), {}, {}, 1, {}, -1};
  const auto bytes = encode({{}, {}, message_of(submit)});
  REQUIRE(!bytes.ok());
  CHECK(bytes.error().code == ErrorCode::kResourceExhausted);
  CHECK(refusal(Submit{SequenceId{1}, 0, std::vector<TokenId>(4000000, 1), {}, {}, 1, {}, -1}) ==
        "");
}
