#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <variant>
#include <vector>

#include "actors/frontend/prepared_request.h"
#include "runtime/ids.h"

namespace troupe {

/// A request was accepted. Its choices are the sequences first_sequence, first_sequence + 1, ...
struct JournalAccepted {
  std::uint64_t request = 0;
  SequenceId first_sequence;
  std::shared_ptr<const PreparedRequest> prepared;  ///< with the seed filled in
};
/// A sequence was handed to a replica: events of earlier attempts no longer count.
struct JournalSubmitted {
  SequenceId sequence;
  std::uint32_t attempt = 0;
};
/// Tokens of a sequence that the client was (or is now) given.
struct JournalTokens {
  SequenceId sequence;
  std::uint32_t index = 0;  ///< of tokens[0] in the output; the journal's length
  std::vector<TokenId> tokens;
};
/// A request is over, well or not: its sequences are forgotten.
struct JournalEnded {
  std::uint64_t request = 0;
};
using JournalRecord = std::variant<JournalAccepted, JournalSubmitted, JournalTokens, JournalEnded>;

/// What is needed to run every accepted sequence again from where it is: prompt, parameters, seed
/// and the tokens so far. It changes by appended records only: a standby that applies the same
/// records holds the same journal.
class Journal {
 public:
  struct Sequence {
    std::uint64_t request = 0;
    std::uint32_t choice = 0;
    std::uint32_t attempt = 0;
    std::shared_ptr<const PreparedRequest> prepared;
    std::vector<TokenId> output;
  };

  /// Applies a record. What does not fit (an unknown sequence, a gap in the tokens) is a defect.
  void append(const JournalRecord& record);

  /// Null if unknown. Valid until the next append.
  const Sequence* find(SequenceId sequence) const;
  std::size_t sequences() const { return sequences_.size(); }
  std::size_t requests() const { return requests_.size(); }
  /// Tokens held: every request's prompt once and every sequence's output.
  std::size_t tokens() const { return tokens_; }

 private:
  struct Request {
    SequenceId first_sequence;
    std::shared_ptr<const PreparedRequest> prepared;
  };
  void apply(const JournalAccepted& record);
  void apply(const JournalSubmitted& record);
  void apply(const JournalTokens& record);
  void apply(const JournalEnded& record);

  std::unordered_map<std::uint64_t, Request> requests_;
  std::unordered_map<SequenceId, Sequence> sequences_;
  std::size_t tokens_ = 0;
};

}  // namespace troupe
