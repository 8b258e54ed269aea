// DeepSeek's calls, as vLLM's parsers deepseek_v3 and deepseek_v31 read them:
//
//     V3, R1  <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME
//             ```json
//             {...}
//             ```<｜tool▁call▁end｜><｜tool▁calls▁end｜>
//     V3.1    <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{...}<｜tool▁call▁end｜>
#include "model/chat/tagged_calls.h"

namespace troupe {
namespace {

constexpr std::string_view kSeparator = kDeepSeekTags[4];

class DeepSeekCalls final : public TaggedCalls {
 public:
  explicit DeepSeekCalls(bool v31)
      : TaggedCalls({kDeepSeekTags[0], kDeepSeekTags[1], kDeepSeekTags[2], kDeepSeekTags[3],
                     v31 ? kSeparator : "```json"}),
        v31_(v31) {}

 private:
  Head read_head(std::string_view header) const override {
    if (!v31_) {
      const std::size_t separator = header.find(kSeparator);
      if (separator == std::string_view::npos) return {};
      header.remove_prefix(separator + kSeparator.size());
    }
    return is_tool_name(header) ? Head{std::string(header), {}} : Head{};
  }

  const bool v31_;
};

}  // namespace

std::unique_ptr<AnswerParser> make_deepseek_calls(bool v31) {
  return std::make_unique<DeepSeekCalls>(v31);
}

}  // namespace troupe
