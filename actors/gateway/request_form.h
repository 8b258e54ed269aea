#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "actors/gateway/api_request.h"
#include "runtime/limits.h"
#include "runtime/request_name.h"
#include "runtime/result.h"

namespace troupe {

/// RequestName::form of the prompt with this index: a small JSON text, from which the answer can be
/// written again. It holds the prompt itself only where it is echoed.
std::string write_form(const ApiRequest& request, std::size_t prompt);
/// A longer one cannot be kept: with its prompt it must fit into a message to a standby.
inline constexpr std::size_t kFormBytesMax = limits::kControlFrameBytesMax / 2;

/// The request of which these are the names, by index of the prompt; null where there is none, but
/// one is. Its prompts are there in number, with what Answer and AnswerRoom ask for; `stream` is
/// not set. Errors: kCorrupt, since names come back from a disk.
Result<ApiRequest> read_forms(const std::vector<std::shared_ptr<const RequestName>>& names,
                              std::size_t max_model_len);

}  // namespace troupe
