#include "actors/gateway/answer_room.h"

#include <doctest/doctest.h>

namespace troupe {
namespace {

ApiRequest request(std::size_t prompts, std::uint32_t n, std::optional<std::uint32_t> max_tokens,
                   std::int32_t logprobs) {
  ApiRequest out;
  GenerationRequest prompt;
  prompt.prompt = std::string("four");
  prompt.n = n;
  prompt.max_tokens = max_tokens;
  out.prompts.assign(prompts, prompt);
  out.logprobs = logprobs;
  return out;
}

TEST_CASE("what an answer may need is reckoned from what it asks for") {
  constexpr std::size_t kLen = 4096;
  struct Case {
    ApiRequest request;
    std::size_t bytes;
  };
  ApiRequest ids = request(1, 2, 10, -1), streamed = request(1, 128, 4096, 20),
             echoed = request(2, 3, 10, 1), echo_stream = echoed;
  ids.return_token_ids = true;
  streamed.stream = true;
  echoed.echo = true;
  echo_stream.echo = echo_stream.stream = true;
  ApiRequest chat = request(1, 1, std::nullopt, 0);
  chat.chat = true;
  ApiRequest response = chat, silent = chat;
  response.response.emplace();
  response.stream = silent.stream = true;
  silent.response.emplace();
  silent.logprobs = -1;
  const Case cases[] = {
      {request(1, 128, 4096, -1), 0},
      {request(1, 1, 10, 0), 10 * 8},
      {request(2, 3, 10, 20), 60 * 21 * 8},
      {request(1, 1, std::nullopt, 0), kCompletionTokens * 8},
      {chat, kLen * 8},
      {response, kLen * 8},
      {silent, 0},
      {request(1, 1, 4000000000, 0), kLen * 8},
      {ids, 20 * 8},
      {streamed, 0},
      {echoed, (60 + 2 * 6) * 16},
      {echo_stream, 2 * 6 * 16},
  };
  AnswerRoom room({});
  for (const Case& c : cases) {
    std::size_t taken = 0;
    CHECK_FALSE(room.take(c.request, kLen, taken));
    CHECK(taken == c.bytes);
    room.give_back(taken);
  }
  CHECK(room.bytes() == 0);
}

TEST_CASE("what can never be is 400, what cannot be now is 429") {
  AnswerRoom room({.one_bytes_max = 10'000, .all_bytes_max = 15'000});
  std::size_t first = 0, second = 0;
  const auto never = room.take(request(1, 128, 3000, 20), 4096, first);
  REQUIRE(never);
  CHECK(never->status == 400);
  CHECK(never->param == "max_tokens");
  CHECK(never->message.find("128 choices of up to 3000 tokens") != std::string::npos);
  ApiRequest prompt = request(1, 1, 1, 20);
  prompt.echo = prompt.stream = true;
  prompt.prompts[0].prompt = std::vector<TokenId>(1000, 5);
  CHECK(room.take(prompt, 4096, first)->param == "prompt");

  CHECK_FALSE(room.take(request(1, 1, 1000, 0), 4096, first));
  const auto later = room.take(request(1, 1, 1000, 0), 4096, second);
  REQUIRE(later);
  CHECK(later->status == 429);
  CHECK(later->retry_after_s > 0);
  room.give_back(first);
  CHECK_FALSE(room.take(request(1, 1, 1000, 0), 4096, second));
  room.add(10'000);  // Texts grow beyond the bound, and newcomers wait for it.
  CHECK(room.take(request(1, 1, 1, 0), 4096, first)->status == 429);
  CHECK(room.take(request(1, 128, 4096, -1), 4096, first)->status == 429);
}

}  // namespace
}  // namespace troupe
