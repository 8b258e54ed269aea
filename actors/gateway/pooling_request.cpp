#include "actors/gateway/pooling_request.h"

#include <bit>
#include <initializer_list>
#include <string>
#include <utility>

#include "actors/gateway/field_reader.h"
#include "actors/gateway/prompt_fields.h"
#include "actors/gateway/request_body.h"

namespace troupe {
namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little);

/// A text that must be one of these; which one it is, the first if it is left out.
std::size_t read_one_of(FieldReader& fields, const char* name,
                        std::initializer_list<const char*> values) {
  std::string text = *values.begin();
  fields.text(name, text);
  std::string known;
  std::size_t index = 0;
  for (const char* value : values) {
    if (text == value) return index;
    ++index;
    known += (known.empty() ? "" : ", ") + std::string(value);
  }
  fields.fail(name, std::string(name) + " must be one of " + known + ".");
  return 0;
}

/// What vLLM has and would change the answer.
void refuse_others(FieldReader& fields) {
  if (fields.find("dimensions") != nullptr)
    fields.fail("dimensions",
                "dimensions cannot be changed: this model was not trained for shorter embeddings.");
  if (fields.find("messages") != nullptr)
    fields.fail("messages", "messages is not supported here; send input.");
  read_one_of(fields, "embed_dtype", {"float32"});
  read_one_of(fields, "endianness", {"native", "little"});
  read_one_of(fields, "truncation_side", {"left"});
}

void read_pooled(FieldReader& fields, const ModelFacts& model, Pooling pooling, ApiRequest& out) {
  GenerationRequest request;
  request.pooling = pooling;
  ApiRequest::Pooled& pooled = *out.pooled;
  refuse_others(fields);
  pooled.base64 = read_one_of(fields, "encoding_format", {"float", "base64"}) == 1;
  fields.boolean("normalize", pooled.normalize);
  fields.boolean("use_activation", pooled.normalize);
  fields.boolean("add_special_tokens", request.add_special_tokens);
  read_prompt_handling(fields, request);
  std::string user;
  fields.text("user", user);
  std::vector<Prompt> inputs = read_prompts(fields, model, "input");
  if (fields.failed()) return;
  for (Prompt& input : inputs) {
    out.prompts.push_back(request);
    out.prompts.back().prompt = std::move(input);
  }
}

}  // namespace

std::optional<ApiError> parse_embeddings(std::string_view body, const ModelFacts& model,
                                         ApiRequest& out) {
  out = ApiRequest{};
  out.pooled.emplace().embedding = true;
  return parse_request(
      body, model, [&](FieldReader& fields) { read_pooled(fields, model, Pooling::kLast, out); });
}

std::optional<ApiError> parse_pooling(std::string_view body, const ModelFacts& model,
                                      ApiRequest& out) {
  out = ApiRequest{};
  out.pooled.emplace();
  return parse_request(body, model, [&](FieldReader& fields) {
    const bool all = read_one_of(fields, "task", {"token_embed", "embed"}) == 0;
    read_pooled(fields, model, all ? Pooling::kAll : Pooling::kLast, out);
  });
}

}  // namespace troupe
