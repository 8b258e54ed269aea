#include "actors/gateway/renamed_fields.h"

#include <string>

namespace troupe {

ApiError with_other_names(ApiError error, std::span<const RenamedField> fields) {
  for (const RenamedField& field : fields) {
    if (error.message.starts_with(field.chat))
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
