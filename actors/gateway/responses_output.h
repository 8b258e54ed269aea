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

namespace troupe {

/// An answer as OpenAI's Responses API has it: items (thoughts, messages, calls of functions) in
/// the order in which the model wrote them, and the events that tell a stream's client of them.
///
///     response.created, .in_progress
///       output_item.added ─ content_part.added ─ output_text.delta ... ─ .done ─ ... item.done
///     response.completed | .incomplete | .failed
class ResponsesOutput {
 public:
  struct About {
    std::string_view model;
    std::string echo;     ///< what the object repeats of the request, a JSON object
    bool stream = false;  ///< events are written
  };
  explicit ResponsesOutput(About about) : about_(std::move(about)) {}
  /// Before the first event.
  void set_name(std::string id, std::int64_t created_unix_s) {
    id_ = std::move(id);
    created_unix_s_ = created_unix_s;
  }

  /// More of the answer. Calls have an id with their name.
  void take(const AnswerDelta& delta);
  /// No more comes; `cut_off`: it is not at its end.
  void end(bool cut_off);

  struct Usage {
    std::uint64_t input = 0, cached = 0, output = 0, reasoning = 0;
  };
  /// Where the whole stands.
  struct State {
    std::string_view status;  ///< queued, in_progress, completed, incomplete or failed
    const Usage* usage = nullptr;
    const ApiError* error = nullptr;  ///< why it failed
  };
  void write(JsonWriter& json, const State& state) const;

  // Of a stream:
  /// Appends the events of what came since the last time; the first of them begin the stream.
  /// `id_line` goes with the last one.
  void append_events(std::string_view id_line, std::string& out);
  /// And the one that ends it.
  void append_end(std::string_view id_line, const State& state, std::string& out);
  /// What came until now has been told. Events are numbered beyond those that told it, into however
  /// many pieces it was cut.
  void skip_events();

  /// All of it as an assistant's message of a chat.
  void write_chat_message(JsonWriter& json) const;

 private:
  enum class Kind : unsigned char { kReasoning, kMessage, kCall };
  struct Item {
    Kind kind;
    std::string name = {}, call_id = {};  // Of a call.
    std::string text = {};                // Or a call's arguments.
    std::size_t told = 0;                 // Of text: with events.
    std::string_view status = "in_progress";
  };

  bool open(Kind kind) const {
    return !ended_ && !items_.empty() && items_.back().kind == kind;
  }
  Item& item(Kind kind);
  void begin(Item item);
  void close(std::string_view status);
  void begin_stream();
  void tell_more();
  void tell_state(std::string_view type, const State& state);
  std::string item_id(std::size_t index) const;
  void write_item(JsonWriter& json, std::size_t index, bool whole) const;
  /// Begins an event with what all have in common; add() ends it.
  JsonWriter event(std::string_view type);
  JsonWriter item_event(std::string_view type);
  void add(std::string_view type, JsonWriter json);
  void part_event(std::string_view type);

  const About about_;
  std::int64_t created_unix_s_ = 0;
  std::string id_;
  std::vector<Item> items_;
  bool begun_ = false, ended_ = false;
  std::size_t sequence_ = 0;
  std::string events_;          // Not taken yet.
  std::size_t last_event_ = 0;  // Where the last of them begins.
};

}  // namespace troupe
