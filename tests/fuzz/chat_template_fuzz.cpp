#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "model/chat/chat_format.h"
#include "model/tokenizer/utf8.h"

/// The bytes are a chat template. Whatever it says, rendering ends, with text that is UTF-8 or with
/// an error that says something.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  troupe::ChatTemplateFile file;
  file.text.assign(reinterpret_cast<const char*>(data), size);
  file.tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
  const auto format = troupe::ChatFormat::make(file);
  if (!format.ok()) return 0;
  const std::vector<troupe::ChatMessage> chat = {
      {"system", "s"}, {"user", "x \xc3\xb6"}, {"assistant", "<think>z</think>y"}, {"user", ""}};
  troupe::ChatOptions options;
  options.tools =
      R"([{"type": "function", "function": {"name": "f", "parameters": {"a": [1, 2.5]}}}])";
  options.template_kwargs = R"({"thinking": true, "n": 3})";
  const auto text = format->render(chat, options);
  if (text.ok() ? !troupe::utf8::valid(*text) : text.error().message.size() > (1u << 20))
    std::abort();
  return 0;
}
