#include "actors/gateway/found_request.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "actors/gateway/request_form.h"
#include "runtime/limits.h"

namespace troupe {

std::optional<ApiError> find_request(NamedRequests& requests, const GatewayModel& model,
                                     FoundRequest& out) {
  Result<std::vector<NamedRequest>> found =
      out.key.empty() ? requests.find(out.id, out.owner) : requests.find_key(out.key, out.owner);
  if (!found && found.error().code == ErrorCode::kNotFound) return no_request_error(out.id);
  if (!found) return to_api_error(found.error());
  out.prompts = std::move(*found);
  std::size_t count = out.prompts.size();
  for (const NamedRequest& prompt : out.prompts)
    if (prompt.name) count = std::max<std::size_t>(count, prompt.name->count);
  if (count > limits::kPromptsMax)
    return to_api_error(corrupt("A request's name counts " + std::to_string(count) + " prompts."));
  out.prompts.resize(count);
  const auto named = [](const NamedRequest& prompt) { return prompt.name != nullptr; };
  if (std::none_of(out.prompts.begin(), out.prompts.end(), named)) return no_request_error(out.id);
  std::vector<std::shared_ptr<const RequestName>> names;
  for (const NamedRequest& prompt : out.prompts) {
    names.push_back(prompt.name);
    if (prompt.name) out.id = prompt.name->id;
    if (prompt.name && out.created_unix_s == 0) out.created_unix_s = prompt.accepted_unix_ms / 1000;
  }
  Result<ApiRequest> request = read_forms(names, model.max_model_len());
  if (!request) return to_api_error(request.error());
  out.request = std::move(*request);
  // Not as many as a new one might have.
  std::uint32_t most = 0;
  for (const NamedRequest& prompt : out.prompts) most = std::max(most, prompt.max_tokens);
  for (GenerationRequest& prompt : out.request.prompts) prompt.max_tokens = most;
  return std::nullopt;
}

ApiError no_request_error(std::string_view id) {
  return {.status = 404,
          .message = "There is no request '" + std::string(id) + "'.",
          .param = "id",
          .code = "request_not_found"};
}

}  // namespace troupe
