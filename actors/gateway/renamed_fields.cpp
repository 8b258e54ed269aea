#include "actors/gateway/renamed_fields.h"

#include <cctype>
#include <string>

namespace troupe {

ApiError with_other_names(ApiError error, std::span<const RenamedField> fields) {
  for (const RenamedField& field : fields) {
    const auto is_in_word = [](char c) {
      return c == '_' || std::isalnum(static_cast<unsigned char>(c));
    };
    const std::size_t size = field.chat.size();
    if (error.message.starts_with(field.chat) &&
        (error.message.size() == size || !is_in_word(error.message[size])))
      error.message.replace(0, field.chat.size(), field.other);
    if (error.param == field.chat) error.param = field.other.substr(0, field.other.find('.'));
  }
  return error;
}

void replace_in_message(ApiError& error, std::string_view what, std::string_view by) {
  std::string& text = error.message;
  for (auto at = text.find(what); at != text.npos; at = text.find(what, at + by.size()))
    text.replace(at, what.size(), by);
}

}  // namespace troupe
