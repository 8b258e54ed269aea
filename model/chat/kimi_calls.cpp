// Kimi K2's calls, as vLLM's parser kimi_k2 reads them. IDX counts the calls of a conversation:
//
//     <|tool_calls_section_begin|><|tool_call_begin|>functions.NAME:IDX
//     <|tool_call_argument_begin|>{...}<|tool_call_end|><|tool_calls_section_end|>
#include <algorithm>

#include "model/chat/tagged_calls.h"

namespace troupe {
namespace {

constexpr std::string_view kPrefix = "functions.";

class KimiCalls final : public TaggedCalls {
 public:
  KimiCalls()
      : TaggedCalls({kKimiTags[0], kKimiTags[1], kKimiTags[2], kKimiTags[3], kKimiTags[4]}) {}

 private:
  Head read_head(std::string_view header) const override {
    const std::size_t colon = header.rfind(':');
    if (colon == std::string_view::npos) return {};
    const std::string_view index = header.substr(colon + 1);
    const bool counts =
        !index.empty() && std::ranges::all_of(index, [](char c) { return c >= '0' && c <= '9'; });
    std::string_view name = header.substr(0, colon);
    if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
    if (!counts || !is_tool_name(name)) return {};
    return {std::string(name), std::string(header)};
  }
};

}  // namespace

std::unique_ptr<AnswerParser> make_kimi_calls() { return std::make_unique<KimiCalls>(); }

}  // namespace troupe
