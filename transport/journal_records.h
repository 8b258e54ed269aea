#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "runtime/ids.h"
#include "runtime/prepared_request.h"
#include "runtime/result.h"
#include "runtime/sampling_params.h"
#include "transport/protocol.h"

/// What a head must not forget of the requests that it accepted, as small records that are only
/// added: on its storage, and for whoever follows it.
namespace troupe {

/// A request was accepted. Its choices are the sequences first_sequence, first_sequence + 1, ...
/// Of a request that is known already: it is told again, from its beginning, and what is known of
/// it stays.
struct JournalAccepted {
  std::uint64_t request = 0;
  SequenceId first_sequence;
  std::int64_t accepted_unix_ms = 0;
  std::shared_ptr<const PreparedRequest> prepared;  ///< with the seed filled in
};
/// A sequence was handed to a replica again: events of earlier attempts no longer count.
struct JournalSubmitted {
  SequenceId sequence;
  std::uint32_t attempt = 0;
};
/// Log-probabilities of the prompt's tokens 1, 2, ...; `index` of them came before.
struct JournalPrompt {
  std::uint64_t request = 0;
  std::uint32_t index = 0;
  std::vector<TokenOutput> logprobs;
};
/// Hidden states of the prompt, once all are there; `index` numbers of them came before.
struct JournalHidden {
  std::uint64_t request = 0;
  std::uint32_t index = 0;
  std::vector<float> values;
};
/// Tokens of a sequence that its client was (or is now) given.
struct JournalTokens {
  SequenceId sequence;
  std::uint32_t index = 0;  ///< of tokens[0] in the output
  std::vector<TokenOutput> tokens;
};
/// A sequence gets no more tokens.
struct JournalFinished {
  SequenceId sequence;
  FinishReason reason = FinishReason::kNone;
  std::uint32_t tokens = 0;  ///< that it got
};
/// A request is over, well or not. What it gave is kept for those who ask again.
struct JournalEnded {
  std::uint64_t request = 0;
  std::int64_t ended_unix_ms = 0;
  std::optional<Error> error;
};
/// Nobody will ask for it any more.
struct JournalForgotten {
  std::uint64_t request = 0;
};
/// Heads have crashed while they were at work on it, one after the other, without a new token in
/// between.
struct JournalCrashes {
  std::uint64_t request = 0;
  std::uint32_t crashes = 0;
  std::uint64_t term = 0;  ///< of the newest of these heads
};
template <>
inline constexpr std::uint32_t kSince<JournalCrashes> = 7;

using JournalRecord =
    std::variant<JournalAccepted, JournalSubmitted, JournalPrompt, JournalHidden, JournalTokens,
                 JournalFinished, JournalEnded, JournalForgotten, JournalCrashes>;

/// Whether a version that does not know such a record may go on without it: it says nothing of
/// what was accepted, what came of it, or who has heard of it.
inline bool may_be_left_out(const JournalRecord& record) {
  return std::holds_alternative<JournalCrashes>(record);
}

namespace transport {

/// The Cap'n Proto form of a record (schema/journal.capnp). Errors: kInvalidArgument (something
/// that `decode_record` would not take), kResourceExhausted (longer than kJournalRecordBytesMax).
Result<std::vector<std::byte>> encode(const JournalRecord& record);

/// Whether a request with that content can be kept and read again; it needs no seed yet. Errors:
/// those of `encode`, and kInvalidArgument with what `decode_record` would not take.
Status can_keep(const PreparedRequest& prepared);

/// Reads and validates what `encode` wrote, as transport/codec.h does with messages. Nothing was
/// used of one that ends with an error: kRefused (of a kind that only newer versions know),
/// kCorrupt, with a sentence that says what is wrong.
Result<JournalRecord> decode_record(std::span<const std::byte> bytes);

}  // namespace transport
}  // namespace troupe
