#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "actors/gateway/api_error.h"
#include "actors/gateway/json_writer.h"
#include "model/chat/answer_parser.h"
#include "runtime/kept_tokens.h"
#include "runtime/sampling_params.h"

namespace troupe {

/// An answer as items (thoughts, messages, calls of functions) in the order in which the model
/// wrote them, and the typed events that tell a stream's client of them. How both are written is
/// the API's: responses_output.h, messages_output.h.
class ItemOutput {
 public:
  /// `stream`: events are written. `alternatives` of each of a message's tokens are kept; -1: none,
  /// nor the tokens.
  explicit ItemOutput(bool stream, std::int32_t alternatives = -1)
      : stream_(stream), alternatives_(alternatives) {}
  virtual ~ItemOutput() = default;

  /// Before the first event.
  void set_name(std::string id, std::int64_t created_unix_s) {
    id_ = std::move(id);
    created_unix_s_ = created_unix_s;
  }

  /// In tokens, so far.
  struct Usage {
    std::uint64_t input = 0, cached = 0, output = 0, reasoning = 0;
  };
  void count(const Usage& usage) { usage_ = usage; }
  /// More of the answer; `tokens`: of its content. Calls have an id with their name.
  void take(const AnswerDelta& delta, const std::vector<TokenOutput>& tokens = {});
  /// No more comes; `cut_off`: it is not at its end.
  void end(bool cut_off);

  /// Where the whole stands.
  struct State {
    FinishReason finish = FinishReason::kNone;
    std::string_view stop = {};       ///< the text that ended it; empty: none of the client's
    const ApiError* error = nullptr;  ///< why it failed
    std::string_view status = {};     ///< of one that is found: queued, running, ...
  };
  virtual void write(JsonWriter& json, const State& state) const = 0;

  // Of a stream:
  /// What came since the last time is an event of its own.
  void tell();
  /// Appends the events of what came since the last time; the first of them begin the stream.
  /// `id_line` goes with the last one.
  void append_events(std::string_view id_line, std::string& out);
  /// And those that end it.
  void append_end(std::string_view id_line, const State& state, std::string& out);
  /// What came until now has been told.
  void skip_events();

  /// All of it as an assistant's message of a chat.
  void write_chat_message(JsonWriter& json) const;

 protected:
  enum class Kind : unsigned char { kReasoning, kMessage, kCall };
  struct Item {
    Kind kind;
    std::string name = {}, call_id = {};  // Of a call.
    std::string text = {};                // Or a call's arguments.
    KeptTokens tokens = KeptTokens(-1);   // Of a message's text.
    std::size_t told = 0, told_tokens = 0;  // Of both: with events.
    bool ended = false, cut_off = false;
  };

  // Each writes its events with add_event().
  virtual void tell_start() = 0;
  /// Of the last item.
  virtual void tell_item() = 0;
  virtual void tell_more(std::string_view more) = 0;
  virtual void tell_item_end() = 0;
  virtual void tell_end(const State& state) = 0;
  /// `json` is the event's object, without its end.
  void add_event(std::string_view type, JsonWriter json);

  const Usage& usage() const { return usage_; }
  const std::string& id() const { return id_; }
  std::int64_t created_unix_s() const { return created_unix_s_; }
  const std::vector<Item>& items() const { return items_; }

 private:
  bool open(Kind kind) const { return !ended_ && !items_.empty() && items_.back().kind == kind; }
  Item& item(Kind kind);
  void begin(Item item);
  void close(bool cut_off);
  void begin_stream();

  const bool stream_;
  const std::int32_t alternatives_;
  std::int64_t created_unix_s_ = 0;
  std::string id_;
  Usage usage_;
  std::vector<Item> items_;
  bool begun_ = false, ended_ = false;
  std::string events_;          // Not taken yet.
  std::size_t last_event_ = 0;  // Where the last of them begins.
};

}  // namespace troupe
