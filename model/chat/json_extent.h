#pragma once

#include <cstddef>
#include <string_view>

namespace troupe {

/// Finds where a JSON value ends that comes in pieces. What is inside of it is not checked: that
/// brackets close is all that counts.
class JsonExtent {
 public:
  enum class Step : unsigned char {
    kInside,       ///< the value goes on after this character
    kEnds,         ///< it is its last one
    kEndedBefore,  ///< it is the first one behind it
  };
  Step step(char c);
  bool begun() const { return begun_; }
  /// The value is a number, true, false or null.
  bool is_word() const { return word_; }

 private:
  bool begun_ = false, word_ = false, text_ = false, escaped_ = false;
  std::size_t depth_ = 0;
};

/// Of JSON that is known to be right: the text of the value that begins at `at`, without blanks.
std::string_view json_value_at(std::string_view json, std::size_t at);
/// The value of an object's member; empty if it has none with this name. The name must need no
/// escapes.
std::string_view json_member(std::string_view object, std::string_view name);
/// Calls `each` with the texts of the members' names, in quotes as they are written, and of their
/// values; with an empty name for a list's.
template <class Each>
void each_json_child(std::string_view json, Each each) {
  constexpr std::string_view kBetween = " \t\r\n,:";
  const bool object = json.starts_with('{');
  for (std::size_t at = json.find_first_not_of(kBetween, 1);
       at != std::string_view::npos && json[at] != '}' && json[at] != ']';
       at = json.find_first_not_of(kBetween, at)) {
    std::string_view name;
    if (object) {
      name = json_value_at(json, at);
      at = json.find_first_not_of(kBetween, at + name.size());
      if (at == std::string_view::npos) return;
    }
    const std::string_view value = json_value_at(json, at);
    if (value.empty()) return;
    at += value.size();
    each(name, value);
  }
}

}  // namespace troupe
