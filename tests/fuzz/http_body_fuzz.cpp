#include <cassert>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "actors/gateway/api_request.h"
#include "actors/gateway/http_target.h"
#include "actors/gateway/messages_request.h"
#include "actors/gateway/site_rules.h"

/// The bodies of every POST of the HTTP API: whatever they are, they end in a request within the
/// limits or in an error with a status code. So do the fields of a header.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  for (const bool has_tokenizer : {true, false}) {
    const troupe::ModelFacts model{.served_model_name = "m", .has_tokenizer = has_tokenizer};
    troupe::ApiRequest request;
    for (auto* parse : {&troupe::parse_completion, &troupe::parse_chat, &troupe::parse_message,
                        &troupe::parse_count_tokens}) {
      const auto error = parse(body, model, request);
      assert(error ? error->status >= 400 && error->status < 500 : !request.prompts.empty());
    }
    troupe::TokenizeRequest tokenize;
    troupe::DetokenizeRequest detokenize;
    (void)troupe::parse_tokenize(body, model, tokenize);
    (void)troupe::parse_detokenize(body, model, detokenize);
  }
  const troupe::SiteRules sites({.hosts = {"name"}, .origins = {"https://name"}});
  const auto refusal = sites.admit(std::string(body), body);
  assert(!refusal || refusal->status == 403);
  const auto target = troupe::parse_target(body);
  assert(!target || target->path.size() <= size + 1);
  (void)troupe::is_json_type(body);
  (void)troupe::is_identity(body);
  return 0;
}
