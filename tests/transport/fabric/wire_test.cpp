#include "transport/fabric/wire.h"

#include "tests/transport/fabric/support.h"
#include "transport/fabric/pace.h"

namespace troupe::transport::testing {
namespace {

std::vector<std::byte> prefix(std::uint32_t header, std::uint64_t payload, std::uint64_t sequence) {
  std::vector<std::byte> bytes(kFramePrefixBytes);
  encode(FramePrefix{header, payload, sequence}, bytes.data());
  return bytes;
}

TEST_CASE("what a gate says and hears comes back") {
  const GateHello hello{kFabricProtocol, key(1, 7), key(2, 1ull << 40), token(3)};
  const auto parsed = parse_gate_hello(encode(hello));
  REQUIRE(parsed.ok());
  CHECK(parsed->from == hello.from);
  CHECK(parsed->to == hello.to);
  CHECK(parsed->token == hello.token);
  const auto reply = parse_gate_reply(encode(GateReply{GateVerdict::kAdmitted, 4711}));
  REQUIRE(reply.ok());
  CHECK(reply->port == 4711);
  const auto pass = parse_door_pass(encode(DoorPass{NodeId{9}, token(4)}));
  REQUIRE(pass.ok());
  CHECK(pass->from == NodeId{9});
  CHECK(pass->token == token(4));
}

TEST_CASE("tokens differ in any byte") {
  for (std::size_t i = 0; i < token(1).size(); ++i) {
    auto other = token(1);
    other[i] ^= std::byte{1};
    CHECK_FALSE(same_token(token(1), other));
  }
  CHECK(same_token(token(1), token(1)));
}

TEST_CASE("any damaged byte of a segment's head is seen or harmless") {
  std::vector<std::byte> segment(kSegmentHeadBytes + 5);
  encode(SegmentHead{SegmentKind::kMore, Track::kQuick, 3, 5, 77}, segment.data());
  REQUIRE(parse_segment(segment).ok());
  for (const std::size_t at : {0, 1, 2, 3, 4, 5, 8, 9, 10, 11}) {
    auto damaged = segment;
    damaged[at] ^= std::byte{0x40};
    CAPTURE(at);
    CHECK_FALSE(parse_segment(damaged).ok());
  }
  for (std::size_t n = 0; n < segment.size(); ++n) {
    CHECK_FALSE(parse_segment({segment.data(), n}).ok());
  }
}

TEST_CASE("a frame that breaks the rules is an error") {
  const std::vector<std::byte> ten(10);
  const auto code = [](Result<bool> result) {
    return result.ok() ? std::string("ok") : std::string(to_string(result.error().code));
  };
  CHECK(code(FrameAssembler().take(SegmentKind::kMore, ten)) == "corrupt");
  CHECK(code(FrameAssembler().take(SegmentKind::kFirst, ten)) == "corrupt");
  CHECK(code(FrameAssembler().take(SegmentKind::kFirst, prefix(0, 0, 1))) == "corrupt");
  CHECK(code(FrameAssembler().take(SegmentKind::kFirst, prefix(~0u, 0, 0))) == "corrupt");
  CHECK(code(FrameAssembler().take(SegmentKind::kFirst, prefix(0, ~0ull, 0))) == "corrupt");
  CHECK(code(FrameAssembler().take(
            SegmentKind::kFirst, prefix(0, limits::kBulkPayloadBytesMax + 1, 0))) == "corrupt");
  FrameAssembler twice;
  REQUIRE(twice.take(SegmentKind::kFirst, prefix(4, 4, 0)).ok());
  CHECK(code(twice.take(SegmentKind::kFirst, prefix(4, 4, 1))) == "corrupt");
  FrameAssembler more;
  REQUIRE(more.take(SegmentKind::kFirst, prefix(4, 4, 0)).ok());
  CHECK(code(more.take(SegmentKind::kMore, ten)) == "corrupt");
  FrameAssembler nothing;
  REQUIRE(nothing.take(SegmentKind::kFirst, prefix(4, 4, 0)).ok());
  CHECK(code(nothing.take(SegmentKind::kMore, {})) == "corrupt");
}

TEST_CASE("noise never breaks the assembler") {
  std::mt19937_64 random(11);
  for (int round = 0; round < 2000; ++round) {
    FrameAssembler assembler;
    for (int step = 0; step < 8; ++step) {
      auto body = prefix(static_cast<std::uint32_t>(random() % 64), random() % 64, random() % 2);
      body.resize(random() % 100);
      if (random() % 4 == 0 && !body.empty()) body[random() % body.size()] = std::byte{0xff};
      auto result =
          assembler.take(random() % 2 ? SegmentKind::kFirst : SegmentKind::kMore, body);
      if (!result) break;
      if (*result) {
        const auto budget = std::make_shared<ReceiveBudget>(1000, [] {});
        const Frame frame = assembler.finish(budget);
        CHECK(frame.bytes() <= 128);
      }
    }
  }
}

TEST_CASE("segments that take no credit carry nothing") {
  for (const SegmentKind kind : {SegmentKind::kCredit, SegmentKind::kAsk}) {
    std::vector<std::byte> segment(kSegmentHeadBytes);
    encode(SegmentHead{kind, Track::kBulk, 3, 0, 77}, segment.data());
    CHECK(parse_segment(segment).ok());
    segment.resize(kSegmentHeadBytes + 1);
    encode(SegmentHead{kind, Track::kBulk, 3, 1, 77}, segment.data());
    CHECK_FALSE(parse_segment(segment).ok());
  }
}

TEST_CASE("segments are small on a slow link, and large on a quick one") {
  // What 14 segments under way take, at so many bytes a second.
  const auto settles_at = [](double bytes_per_s) {
    Pace pace;
    TimePoint now{};
    for (int round = 0; round < 40; ++round) {
      for (int i = 0; i < 14; ++i) pace.sent(now);
      now += std::chrono::duration_cast<Duration>(std::chrono::duration<double>(
          14 * static_cast<double>(pace.segment_bytes()) / bytes_per_s));
      pace.returned(14, now);
    }
    return pace.segment_bytes();
  };
  CHECK(settles_at(1.25e9) == limits::kBulkSegmentBytes);
  CHECK(settles_at(125e6) == limits::kBulkSegmentBytes);
  CHECK(settles_at(1e6) == 16u << 10);
  Pace pace;
  pace.returned(3, TimePoint{});  // what was never sent
  CHECK(pace.segment_bytes() == limits::kBulkSegmentBytes / 4);
}

TEST_CASE("the budget tells when there is room again") {
  int told = 0;
  ReceiveBudget budget(100, [&] { ++told; });
  budget.take(60);
  CHECK_FALSE(budget.full());
  budget.take(60);
  CHECK(budget.full());
  budget.release(60);
  CHECK(told == 1);
  budget.release(60);
  CHECK(told == 1);
}

}  // namespace
}  // namespace troupe::transport::testing
