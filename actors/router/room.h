#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "actors/router/key_shares.h"
#include "runtime/ids.h"
#include "runtime/prepared_request.h"

namespace troupe {

/// Output tokens of a choice that are counted when its request is accepted, and again each time it
/// has used them up: most answers are shorter, and `max_tokens` is often the whole context.
inline constexpr std::uint32_t kCountedAheadMax = 4096;

/// Room for accepted requests, for their sequences, and in the journal, shared by those that are
/// not over. A part of the Router. In the journal each is counted with its prompt and with what its
/// choices may come to before they are counted again; so newcomers are refused before anybody who
/// was accepted lacks room. With several keys each has its own part (KeyShares::may_have).
///
/// Should outputs outgrow the journal, the newest sequences of the owner that holds most of it for
/// its weight pause: they hold what they have and get nothing more until others end. The oldest
/// never pauses, so that there is an end; the journal may be too full by its output alone.
class Room {
 public:
  /// Words of 4 bytes (journal_words.h).
  explicit Room(std::size_t words_max, KeyShares shares = {})
      : words_max_(words_max), key_shares_(std::move(shares)) {}

  /// Whether a newcomer fits. Not while others of its owner pause.
  bool takes(const PreparedRequest& request) const;
  /// A request was accepted; its choices are first, first + 1, ...
  void add(SequenceId first, const PreparedRequest& request);
  /// A choice has more tokens.
  void grow(SequenceId sequence, std::size_t tokens);
  /// A choice gets no more of them.
  void finish(SequenceId sequence);
  /// A request is over.
  void remove(SequenceId first, const PreparedRequest& request);

  /// The next one that is to pause, which it does from now on; none: there is room for all.
  std::optional<SequenceId> pause_one();
  /// The next one that may go on, which it does from now on.
  std::optional<SequenceId> resume_one();

  std::size_t counted() const { return total_.words; }
  std::size_t paused() const { return total_.paused; }
  std::string violation() const;

 private:
  struct Share {
    std::uint64_t owner = 0;
    std::size_t prompt = 0;  ///< words of the request's prompt; with its first choice
    std::size_t each = 1;    ///< words of an output token
    std::size_t held = 0;    ///< output tokens
    std::size_t ahead = 0;   ///< that are counted beside these
    std::size_t max = 0;     ///< output tokens that it may have
    bool finished = false, paused = false;

    bool goes_on() const { return !paused && !finished; }
    std::size_t counted() const { return prompt + (held + ahead) * each; }
    std::size_t wanted() const;
  };
  struct Sums {
    std::size_t requests = 0, sequences = 0, words = 0, paused = 0;
    bool operator==(const Sums&) const = default;
  };
  void count(Share& share, std::size_t ahead);
  void pause(Share& share, bool paused);
  void add_words(std::uint64_t owner, std::size_t words);
  void take_words(std::uint64_t owner, std::size_t words);

  std::size_t words_max_;
  KeyShares key_shares_;
  std::map<SequenceId, Share> shares_;
  Sums total_;
  std::map<std::uint64_t, Sums> owners_;  ///< that have a request
};

}  // namespace troupe
