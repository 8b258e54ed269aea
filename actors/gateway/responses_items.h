#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/result.h"

namespace troupe {

struct InputItem {
  std::string id, text;  ///< the text is a JSON object
};

/// What a Response was asked, as items. `messages` is the conversation before its answer, a chat's
/// (ApiRequest::Response), so what it followed is there, too; `id` the Response's, of which items
/// have theirs. kCorrupt: the messages are none.
Result<std::vector<InputItem>> input_items(std::string_view id, std::string_view messages);

/// A page of them: GET /v1/responses/ID/input_items. Of `query` count `limit`, `order` and `after`;
/// errors name them.
Result<std::string> write_input_items(std::string_view id, std::string_view messages,
                                      std::string_view query);

}  // namespace troupe
