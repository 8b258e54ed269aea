#include "actors/gateway/exchange.h"

#include <doctest/doctest.h>

#include "tests/actors/gateway/fakes.h"

namespace troupe::testing {
namespace {

/// Has one request, which was asked for before; the test tells its reader.
struct Known final : GenerationService, NamedRequests {
  Result<AcceptedRequest> submit(GenerationRequest, std::shared_ptr<GenerationSink> s) override {
    sink = std::move(s);
    return AcceptedRequest{1, std::make_shared<const RequestName>(RequestName{.id = "before"})};
  }
  void cancel(std::uint64_t) override {}
  Result<std::vector<NamedRequest>> find(const std::string&, std::uint64_t) override {
    return not_found("There is none.");
  }
  Result<std::vector<NamedRequest>> find_key(const std::string&, std::uint64_t) override {
    return not_found("There is none.");
  }
  Result<AcceptedRequest> attach(const RequestWanted&, std::shared_ptr<GenerationSink>) override {
    return not_found("There is none.");
  }
  Status forget(const std::string&, std::uint64_t) override { return {}; }
  /// So many tokens of a text.
  void tell(std::size_t count, bool behind) const {
    GenerationEvent event;
    event.text.assign(count, 'a');
    event.tokens.assign(count, TokenOutput{97, 0, {}});
    event.behind = behind;
    sink->on_event(std::move(event));
  }
  std::shared_ptr<GenerationSink> sink;
};

TEST_CASE("who is behind is told as fast as it goes, and nobody else") {
  constexpr std::size_t kMany = 10'000, kUnsentBytesMax = kMany * sizeof(TokenOutput) / 2;
  Known known;
  const ByteModel model;
  AnswerRoom room({});
  const auto exchange =
      std::make_shared<Exchange>(known, known, model, kUnsentBytesMax, room, [] {});
  ApiRequest request;
  request.stream = true;
  request.prompts.resize(1);
  request.prompts[0].prompt = std::string("a");
  REQUIRE_FALSE(exchange->submit(std::move(request), {.owner = 1, .key = "key", .body = {}}));
  const auto drain = [&] {
    while (!exchange->take().bytes.empty()) {
    }
    static_cast<void>(exchange->take());
  };
  known.tell(kMany, true);
  drain();
  known.tell(kMany, true);
  CHECK_FALSE(exchange->too_slow());
  drain();
  known.tell(kMany, false);
  CHECK_FALSE(exchange->too_slow());
  CHECK(room.bytes() > 0);
  drain();
  CHECK(room.bytes() == 0);
  known.tell(kMany, false);  // it has caught up
  CHECK(exchange->too_slow());
  exchange->cancel();
}

}  // namespace
}  // namespace troupe::testing
