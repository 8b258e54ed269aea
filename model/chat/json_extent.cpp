#include "model/chat/json_extent.h"

namespace troupe {

JsonExtent::Step JsonExtent::step(char c) {
  if (escaped_) {
    escaped_ = false;
    return Step::kInside;
  }
  if (text_) {
    if (c == '\\') escaped_ = true;
    if (c != '"') return Step::kInside;
    text_ = false;
    return depth_ == 0 ? Step::kEnds : Step::kInside;
  }
  if (word_ && (c == ',' || c == '}' || c == ']' || c == ':' || c == ' ' || c == '\n' ||
                c == '\t' || c == '\r'))
    return Step::kEndedBefore;
  if (!begun_) word_ = c != '"' && c != '{' && c != '[';
  begun_ = true;
  if (c == '"') text_ = true;
  if (c == '{' || c == '[') ++depth_;
  if ((c == '}' || c == ']') && depth_ > 0 && --depth_ == 0) return Step::kEnds;
  return Step::kInside;
}

std::string_view json_value_at(std::string_view json, std::size_t at) {
  JsonExtent extent;
  for (std::size_t i = at; i < json.size(); ++i) {
    switch (extent.step(json[i])) {
      case JsonExtent::Step::kInside:
        continue;
      case JsonExtent::Step::kEnds:
        return json.substr(at, i + 1 - at);
      case JsonExtent::Step::kEndedBefore:
        return json.substr(at, i - at);
    }
  }
  return json.substr(at);
}

std::string_view json_member(std::string_view object, std::string_view name) {
  std::string_view found;
  each_json_child(object, [&](std::string_view quoted, std::string_view value) {
    if (quoted.size() == name.size() + 2 && quoted.substr(1, name.size()) == name) found = value;
  });
  return found;
}

}  // namespace troupe
