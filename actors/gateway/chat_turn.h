#pragma once

#include <optional>
#include <string>
#include <vector>

namespace troupe {

/// A message of a chat that another API's request is rewritten to.
struct ChatTurn {
  std::string role;
  std::optional<std::string> text = {};  ///< its content, or
  std::vector<std::string> parts = {};   ///< these; neither: null
  std::string call_id = {};              ///< of a tool: which call's result this is
  bool is_error = false;                 ///< and that it says what went wrong
  struct Call {
    std::string id, name, arguments;
  };
  std::vector<Call> calls = {};
  std::string thought = {};

  /// More content, behind what is there.
  void add(std::string more);
};

/// The `messages` of a chat, a JSON list.
std::string write_chat_turns(const std::vector<ChatTurn>& turns);

}  // namespace troupe
