#include "tests/actors/router/serving_client.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "tests/actors/replica/fake_model.h"

namespace troupe::testing {

void Client::begin() {
  tokens.resize(prepared.n);
  finish.resize(prepared.n, FinishReason::kNone);
  begun = true;
}

void Client::pool(Pooling pooling) {
  prepared.pooling = pooling;
  prepared.hidden_width = kHiddenWidth;
  prepared.n = 1;
  prepared.max_tokens = 0;
  prepared.prompt_logprobs = -1;
}

void Client::receive(const GenerationEvent& event) {
  CHECK(!done);
  if (!event.prompt_tokens.empty()) CHECK(event.prompt_tokens == prepared.prompt);
  prompt_logprobs.insert(prompt_logprobs.end(), event.prompt_logprobs.begin(),
                         event.prompt_logprobs.end());
  hidden.insert(hidden.end(), event.hidden.begin(), event.hidden.end());
  auto& of_choice = tokens.at(event.choice);
  if (!event.error) CHECK(finish[event.choice] == FinishReason::kNone);
  of_choice.insert(of_choice.end(), event.tokens.begin(), event.tokens.end());
  if (event.finish != FinishReason::kNone) finish[event.choice] = event.finish;
  error = event.error;
  done = event.request_done;
}

void Client::check(SimulationReport& report) const {
  if (!begun) return;
  CHECK(done);
  check_error(report);
  for (std::uint32_t choice = 0; choice < prepared.n; ++choice) check_choice(choice, report);
}

void Client::check_error(SimulationReport& report) const {
  if (poison) CHECK(error.has_value());
  if (!error) return;
  if (error->code == ErrorCode::kDeadlineExceeded && hurried) {
    ++report.timeouts;
    return;
  }
  if (error->code == ErrorCode::kCancelled && went_away) return;
  if (poison) {
    CHECK(error->code == ErrorCode::kInternal);
    return;
  }
  FAIL_CHECK(error->message);
}

void Client::check_choice(std::uint32_t choice, SimulationReport& report) const {
  SamplingParams sampling = prepared.sampling;
  sampling.seed = *prepared.seed;
  sampling.choice = choice;
  const Expected expected =
      expected_of(prepared.prompt, sampling, prepared.max_tokens, !prepared.stop_tokens.empty(),
                  prepared.prompt_logprobs);
  const auto& got = tokens[choice];
  report.tokens += got.size();
  if (error) {
    REQUIRE(got.size() <= expected.output.size());
    CHECK(std::equal(got.begin(), got.end(), expected.output.begin()));
    return;
  }
  CHECK(got == expected.output);
  CHECK(finish[choice] == expected.finish);
  CHECK(prompt_logprobs == expected.prompt_logprobs);
  CHECK(hidden == expected_hidden(prepared.prompt, prepared.pooling));
}

}  // namespace troupe::testing
