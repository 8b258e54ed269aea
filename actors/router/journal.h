#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "runtime/ids.h"
#include "runtime/kept_tokens.h"
#include "transport/journal_records.h"

namespace troupe {

/// Heads that crash at work on a request, without a new token of it in between, until it is given
/// up: the first may have been chance, and a head is back within a second or two.
inline constexpr std::uint32_t kHeadCrashesMax = 3;

/// The records that say `hidden` from that place on, each far below its bound.
std::vector<JournalRecord> hidden_records(std::uint64_t request, std::size_t from,
                                          const std::vector<float>& hidden);

/// What is needed to run every accepted sequence again from where it is, and to give what it gave
/// to those who ask again: prompt, parameters, seed and the tokens so far. It changes by records
/// only: whoever applies the same ones holds the same journal.
class Journal {
 public:
  struct Sequence {
    std::uint64_t request = 0;
    std::uint32_t choice = 0;
    std::uint32_t attempt = 0;
    std::shared_ptr<const PreparedRequest> prepared;
    std::vector<TokenId> output;
    std::optional<KeptTokens> logprobs;  ///< of the output, if the request asked for them
    FinishReason finish = FinishReason::kNone;
  };
  struct Request {
    SequenceId first_sequence;
    std::shared_ptr<const PreparedRequest> prepared;
    std::int64_t accepted_unix_ms = 0;
    std::optional<KeptTokens> prompt_logprobs;  ///< of tokens 1, 2, ..., if it asked for them
    std::vector<float> hidden;                  ///< states of the prompt, if it asked for them
    bool ended = false;
    std::int64_t ended_unix_ms = 0;  ///< 0: nobody knows
    std::size_t clock = 0;           ///< which said so: see change_clock()
    std::optional<Error> error;      ///< with which it ended
    std::uint32_t crashes = 0;       ///< of heads at work on it, since its newest token or end
    std::uint64_t crash_term = 0;    ///< of the newest of them

    bool given_up() const { return error && crashes >= kHeadCrashesMax; }
  };

  /// Applies a record that fits.
  void append(const JournalRecord& record);
  /// Whether it can be applied: it speaks of what is known, leaves no gap, and nothing before it is
  /// missing. Of what a storage gives, records that do not fit are left out: what they said is
  /// computed again. What is known may be told again, since it is the same.
  bool fits(const JournalRecord& record) const;
  /// Whether it has other tokens than these where both have some: one of them is wrong.
  bool denies(const JournalTokens& record) const;
  /// Smaller numbers than these were used by requests that nobody remembers.
  void reserve(std::uint64_t next_request, std::uint64_t next_sequence);

  /// When the last request ended by the clock of now; 0: none has.
  std::int64_t last_end_unix_ms() const { return last_ends_unix_ms_.back(); }
  /// Ends come by another clock from here on. Nobody knows how far it is from those before.
  void change_clock() { last_ends_unix_ms_.push_back(0); }
  /// How long before the last end by the same clock that one was, which is over.
  std::int64_t age_ms(const Request& ended) const;
  /// It is `unix_ms` now by the only clock from here on; what is over is as old as it was.
  void set_clock(std::int64_t unix_ms);
  /// All that it gave is to come again.
  void begin_again(std::uint64_t request);
  /// Of a sequence that goes on: its last token will come again.
  void take_back(SequenceId sequence);

  /// Null if unknown. Valid until the next append.
  const Sequence* find(SequenceId sequence) const;
  const Request* request(std::uint64_t id) const;
  const std::map<std::uint64_t, Request>& all() const { return requests_; }
  /// Numbers that no request has had.
  std::uint64_t next_request() const { return next_request_; }
  std::uint64_t next_sequence() const { return next_sequence_; }
  std::size_t sequences() const { return sequences_.size(); }
  std::size_t requests() const { return requests_.size(); }
  /// Words of 4 bytes that it holds (journal_words.h).
  std::size_t words() const { return words_; }
  /// The same of one request; 0 if unknown.
  std::size_t words_of(std::uint64_t request) const;

  /// Where a telling of requests, in the order of their numbers, goes on.
  struct Place {
    std::uint64_t request = 0;  ///< the last one that was told, or the one that is being told
    bool within = false;        ///< this
    std::uint32_t choice = 0;   ///< of that one
    std::size_t token = 0;      ///< of the choice
  };
  /// Appends records that make the requests behind `place`, up to `until`, in another journal: so
  /// much that it takes about `words_max`, and no more than `words_max` where requests are large.
  /// True: all has been told. Requests without a name, which nobody finds again, are left out.
  bool tell(Place& place, std::uint64_t until, std::size_t words_max,
            std::vector<JournalRecord>& out) const;

 private:
  bool finished(const Request& request) const;
  void tell_beginning(std::uint64_t request, std::vector<JournalRecord>& out) const;
  bool tell_choice(Place& place, const Request& known, std::size_t& words, std::size_t words_max,
                   std::vector<JournalRecord>& out) const;
  void apply(const JournalAccepted& record);
  void apply(const JournalSubmitted& record);
  void apply(const JournalPrompt& record);
  void apply(const JournalHidden& record);
  void apply(const JournalTokens& record);
  void apply(const JournalFinished& record);
  void apply(const JournalEnded& record);
  void apply(const JournalForgotten& record);
  void apply(const JournalCrashes& record);
  void forget(std::uint64_t request);

  std::map<std::uint64_t, Request> requests_;
  std::unordered_map<SequenceId, Sequence> sequences_;
  std::size_t words_ = 0;
  std::vector<std::int64_t> last_ends_unix_ms_{0};  ///< by each clock
  std::uint64_t next_request_ = 1;
  std::uint64_t next_sequence_ = 1;
};

}  // namespace troupe
