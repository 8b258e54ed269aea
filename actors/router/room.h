#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "actors/frontend/prepared_request.h"
#include "runtime/ids.h"

namespace troupe {

/// Output tokens of a choice that are counted when its request is accepted, and again each time it
/// has used them up: most answers are shorter, and `max_tokens` is often the whole context.
inline constexpr std::uint32_t kCountedAheadMax = 4096;

/// Room in the journal, shared by the requests that were accepted. A part of the Router. Each is
/// counted with its prompt and with what its choices may come to before they are counted again; so
/// newcomers are refused before anybody who was accepted lacks room. Should outputs outgrow that,
/// the newest sequences pause: they hold what they have and get nothing more until others end. The
/// oldest never pauses, so that there is an end; the journal may be too full by its output alone.
class Room {
 public:
  explicit Room(std::size_t tokens_max) : tokens_max_(tokens_max) {}

  /// Whether a newcomer fits. Not while others pause.
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

  std::size_t counted() const { return counted_; }
  std::size_t paused() const { return paused_; }
  std::string violation() const;

 private:
  struct Share {
    std::size_t prompt = 0;  ///< of the request; with its first choice
    std::size_t held = 0;    ///< output tokens
    std::size_t ahead = 0;   ///< that are counted beside these
    std::size_t max = 0;     ///< output tokens that it may have
    bool finished = false, paused = false;

    std::size_t counted() const { return prompt + held + ahead; }
    std::size_t wanted() const;
  };
  void count(Share& share, std::size_t ahead);

  std::size_t tokens_max_;
  std::map<SequenceId, Share> shares_;
  std::size_t counted_ = 0;
  std::size_t paused_ = 0;
};

}  // namespace troupe
