#include "actors/frontend/text_ends.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace troupe {
namespace {

/// Found again in what a template makes of it.
constexpr const char* kAnswer = "THE_ANSWER_ENDS_HERE";

constexpr std::string_view kGeneration = "generation_config";

bool is_added(const Tokenizer& tokenizer, TokenId id) {
  return tokenizer.is_special(id) || tokenizer.added_token_id(tokenizer.token_bytes(id)) == id;
}

Result<std::string> rendered(const ChatFormat& chat, const std::vector<ChatMessage>& messages) {
  ChatOptions options;
  options.add_generation_prompt = false;
  return chat.render(messages, options);
}

std::optional<TokenId> chat_begin(const ChatFormat& chat, const Tokenizer& tokenizer) {
  const auto text = rendered(chat, {{"user", "x"}});
  if (!text.ok()) return std::nullopt;
  const auto ids = tokenizer.encode(*text, false);
  if (!ids.ok() || ids->empty() || !tokenizer.is_special(ids->front())) return std::nullopt;
  return ids->front();
}

/// What follows an answer in the midst of a conversation, as the chat template writes it; white
/// space may stand before it. Where it is the token that begins the next turn, that ends an answer
/// as well. Not for answers in several messages, each of which ends.
std::optional<TokenId> turn_end(const ChatFormat& chat, const Tokenizer& tokenizer) {
  if (chat.reasoning_style() == ReasoningStyle::kHarmony) return std::nullopt;
  const auto text = rendered(chat, {{"user", "x"}, {"assistant", kAnswer}, {"user", "x"}});
  if (!text.ok()) return std::nullopt;
  const auto answer = text->rfind(kAnswer);
  if (answer == text->npos) return std::nullopt;
  const auto rest = text->find_first_not_of(" \t\r\n", answer + std::string_view(kAnswer).size());
  if (rest == text->npos) return std::nullopt;
  const auto ids = tokenizer.encode(std::string_view(*text).substr(rest), false);
  if (!ids.ok() || ids->empty() || !is_added(tokenizer, ids->front())) return std::nullopt;
  return ids->front();
}

/// Each token once, in the order in which they are told.
class EndTokens {
 public:
  void add(const std::vector<TokenId>& ids, std::string_view told_by) {
    for (const TokenId id : ids) {
      const auto [at, fresh] = places_.emplace(id, tokens_.size());
      if (fresh) tokens_.push_back({id, {}});
      auto& all = tokens_[at->second].told_by;
      if (all.empty() || all.back() != told_by) all.push_back(told_by);
    }
  }
  std::vector<EndToken> take() { return std::move(tokens_); }

 private:
  std::vector<EndToken> tokens_;
  std::unordered_map<TokenId, std::size_t> places_;
};

std::string named(TokenId id, const Tokenizer* tokenizer) {
  const std::string number = std::to_string(id);
  return tokenizer ? number + " " + tokenizer->decode(std::vector{id}, false) : number;
}

}  // namespace

TextEnds find_text_ends(const TextEndSources& from) {
  const Tokenizer* tokenizer = from.tokenizer;
  TextEnds ends;
  EndTokens tokens;
  tokens.add(from.generation.eos_token_ids, kGeneration);
  tokens.add(from.spec.eos_token_ids, "config");
  if (tokenizer) {
    tokens.add(tokenizer->ends(), "tokenizer");
    ends.begin = tokenizer->prefix();
    if (from.chat.ok()) {
      ends.chat_begin = chat_begin(*from.chat, *tokenizer);
      if (const auto id = turn_end(*from.chat, *tokenizer)) tokens.add({*id}, "chat_template");
    }
  }
  ends.end = tokens.take();
  std::erase_if(ends.end, [&](const EndToken& e) { return e.id < 0 || e.id >= from.spec.vocab; });
  const auto ordinary = [&](const EndToken& e) {
    return !is_added(*tokenizer, e.id) && e.told_by.front() != kGeneration;
  };
  if (tokenizer && !std::ranges::all_of(ends.end, ordinary)) std::erase_if(ends.end, ordinary);
  return ends;
}

std::string describe(const TextEnds& ends, const Tokenizer* tokenizer) {
  const auto list = [&](const auto& tokens, const auto& id_of) {
    std::string text;
    for (const auto& token : tokens)
      text += (text.empty() ? "" : ", ") + named(id_of(token), tokenizer);
    return text.empty() ? std::string("no token") : text;
  };
  std::string text = "texts begin with " + list(ends.begin, [](TokenId id) { return id; });
  if (ends.chat_begin) text += ", chats with " + named(*ends.chat_begin, tokenizer);
  return text + "; answers end at " + list(ends.end, [](const EndToken& e) { return e.id; });
}

}  // namespace troupe
