#include "tests/actors/gateway/fakes.h"

#include <array>

namespace troupe::testing {
namespace {

constexpr TokenId kBos = 256;

const std::array<char, 256>& all_bytes() {
  static const std::array<char, 256> bytes = [] {
    std::array<char, 256> all{};
    for (int i = 0; i < 256; ++i) all[static_cast<std::size_t>(i)] = static_cast<char>(i);
    return all;
  }();
  return bytes;
}

}  // namespace

Result<std::vector<TokenId>> ByteModel::encode(std::string_view text,
                                               bool add_special_tokens) const {
  if (large_go_on.valid() && text.size() > 100'000) large_go_on.wait();
  std::vector<TokenId> ids;
  if (add_special_tokens) ids.push_back(kBos);
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

Result<std::vector<TokenId>> ByteModel::prompt_tokens(const GenerationRequest& request) const {
  if (const auto* ids = std::get_if<std::vector<TokenId>>(&request.prompt)) return *ids;
  if (const auto* text = std::get_if<std::string>(&request.prompt))
    return encode(*text, request.add_special_tokens);
  std::string all;
  for (const ChatMessage& message : std::get<std::vector<ChatMessage>>(request.prompt))
    all += message.content;
  return encode(all, true);
}

Result<std::string> ByteModel::decode(std::span<const TokenId> ids) const {
  std::string text;
  for (const TokenId id : ids) {
    if (id < 0 || id > kBos)
      return invalid_argument("tokens: " + std::to_string(id) + " is no token.");
    text += token_bytes(id);
  }
  return text;
}

ReasoningStart ByteModel::reasoning(const GenerationRequest& request) const {
  const auto* messages = std::get_if<std::vector<ChatMessage>>(&request.prompt);
  if (messages == nullptr || messages->empty()) return {};
  const bool off = request.chat_template_kwargs.find("false") != std::string::npos ||
                   messages->front().content == "off";
  return {reasoning_style(), opens && !off, opens && off};
}

std::string_view ByteModel::token_bytes(TokenId id) const {
  if (id == kBos) return "<s>";
  if (id == ByteModel::kOpen) return "<think>";
  if (id == ByteModel::kClose) return "</think>";
  if (!tokenizer || id < 0 || id > 255) return "";
  return std::string_view(&all_bytes()[static_cast<std::size_t>(id)], 1);
}

}  // namespace troupe::testing
