#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "model/chat/answer_parser.h"

namespace {

struct Whole {
  std::string reasoning, content, calls;
  std::size_t count = 0, arguments = 0;
};

void take(Whole& whole, const troupe::AnswerDelta& delta) {
  whole.reasoning += delta.reasoning;
  whole.content += delta.content;
  for (const troupe::CallDelta& call : delta.calls) {
    if (!call.name.empty()) {
      assert(call.index == whole.count);
      whole.calls += "\n" + call.name + " " + call.id + " ";
      ++whole.count;
    }
    assert(call.index + 1 == whole.count);
    whole.calls += call.arguments;
    whole.arguments += call.arguments.size();
  }
}

/// Pieces of `piece` bytes, or of lengths that come from the text itself.
Whole told(const troupe::AnswerForm& form, std::string_view text, std::size_t piece) {
  const auto parser = troupe::make_answer_parser(form);
  Whole whole;
  if (!parser) return {{}, std::string(text), {}};
  std::uint64_t random = text.size() + 1;
  for (std::size_t at = 0; at < text.size();) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    const std::size_t size = piece > 0 ? piece : 1 + (random >> 33) % 9;
    take(whole, parser->feed(text.substr(at, size)));
    at += size;
    assert(parser->held() <= std::min(at, text.size()));
  }
  take(whole, parser->finish());
  return whole;
}

}  // namespace

/// The first byte chooses how thoughts and calls are written, the rest is an answer. However it is
/// cut, the same comes of it; what has no tags in it comes as it is; and nothing is made up.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace troupe;
  if (size == 0) return 0;
  constexpr unsigned kStyles = static_cast<unsigned>(ToolStyle::kList) + 1;
  AnswerForm form;
  form.tools = static_cast<ToolStyle>(data[0] % kStyles);
  form.reasoning.style = form.tools == ToolStyle::kHarmony
                             ? ReasoningStyle::kHarmony
                             : static_cast<ReasoningStyle>(data[0] / kStyles % 3);
  form.reasoning.inside = data[0] / kStyles / 3 % 2 == 1;
  form.sketch = {{"f", {"s"}}, {"now", {}}};
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Whole whole = told(form, text, text.size() + 1);
  for (const std::size_t piece : {1u, 2u, 7u, 0u}) {
    const Whole cut = told(form, text, piece);
    assert(cut.reasoning == whole.reasoning && cut.content == whole.content);
    assert(cut.calls == whole.calls && cut.count == whole.count);
  }
  // Escapes make up to six bytes of one.
  assert(whole.reasoning.size() + whole.content.size() <= text.size());
  assert(whole.arguments <= 6 * text.size() + 2 * whole.count);
  if (text.find_first_of("<{[") == std::string_view::npos)
    assert(whole.reasoning + whole.content == text && whole.count == 0);
  return 0;
}
