#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "model/chat/chat_format.h"
#include "model/tokenizer/detokenizer.h"
#include "model/tokenizer/utf8.h"

namespace {

/// A tokenizer that loaded must work: no crash, and text that is UTF-8.
void use(const std::shared_ptr<const troupe::Tokenizer>& tokenizer) {
  constexpr std::string_view kText = "Hello, w\xc3\xb6rld 123  <s>\n\n\xe6\x98\xaf\xff ''s  ";
  const auto ids = tokenizer->encode(kText, true);
  if (!ids.ok()) return;
  troupe::StreamDecoder decoder(tokenizer, {});
  std::string streamed;
  for (const troupe::TokenId id : *ids) streamed += decoder.feed(id);
  streamed += decoder.finish();
  if (!troupe::utf8::valid(streamed) || streamed != tokenizer->decode(*ids, true)) std::abort();
}

}  // namespace

/// The bytes are tokenizer.json; what follows a zero byte, if there is one, is
/// tokenizer_config.json. They are also read as a chat template.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const std::size_t zero = bytes.find('\0');
  const auto tokenizer = troupe::Tokenizer::from_json(
      bytes.substr(0, zero),
      zero == std::string_view::npos ? std::string_view() : bytes.substr(zero + 1));
  if (tokenizer.ok()) use(*tokenizer);

  const auto format = troupe::ChatFormat::detect(bytes, "<s>", "</s>");
  const std::vector<troupe::ChatMessage> chat = {{"user", "x"}, {"assistant", "</think>y"}};
  if (format.ok()) (void)format->render(chat, true);
  return 0;
}
