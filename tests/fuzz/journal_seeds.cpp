#include <memory>

#include "actors/gateway/request_form.h"
#include "tests/fuzz/seeds.h"
#include "transport/journal_records.h"

namespace troupe::fuzz {

/// Every kind of record, and a form.
std::vector<std::string> made_seeds() {
  ApiRequest request;
  request.chat = true;
  request.logprobs = 2;
  request.prompts.resize(1);
  request.prompts[0].max_tokens = 7;
  const std::string form = write_form(request, 0);

  auto prepared = std::make_shared<PreparedRequest>();
  prepared->prompt = {1, 2, 3};
  prepared->max_tokens = 9;
  prepared->prompt_logprobs = 1;
  prepared->pooling = Pooling::kLast;
  prepared->hidden_width = 2;
  prepared->stop = {"stop"};
  prepared->stop_tokens = {4};
  prepared->name = std::make_shared<const RequestName>(
      RequestName{"id", 0, 2, 3, "key", {4, 5}, form});
  const TokenOutput token{7, -0.5f, {{7, -0.5f}, {8, -1.5f}}};
  const JournalRecord records[] = {JournalAccepted{1, SequenceId{2}, 3, prepared},
                                   JournalSubmitted{SequenceId{2}, 1},
                                   JournalPrompt{1, 0, {token, token}},
                                   JournalHidden{1, 0, {0.5f, -1.0f}},
                                   JournalTokens{SequenceId{2}, 0, {token}},
                                   JournalFinished{SequenceId{2}, FinishReason::kStop, 1},
                                   JournalEnded{1, 4, unavailable("No.")},
                                   JournalForgotten{1},
                                   JournalCrashes{1, 2, 3}};
  std::vector<std::string> seeds{form};
  for (const JournalRecord& record : records)
    if (const auto bytes = transport::encode(record); bytes.ok())
      seeds.emplace_back(reinterpret_cast<const char*>(bytes->data()), bytes->size());
  return seeds;
}

}  // namespace troupe::fuzz
