#include "actors/gateway/answer_logprobs.h"

#include <algorithm>
#include <array>

#include "model/tokenizer/utf8.h"

namespace troupe {
namespace {

constexpr std::array<std::string_view, 4> kLists{"text_offset", "token_logprobs", "tokens",
                                                 "top_logprobs"};

void write_token(JsonWriter& json, const TokenNames& names, const TokenLogprob& token,
                 bool with_bytes) {
  json.member("token", names.of(token.token)).member("logprob", token.logprob);
  if (!with_bytes) return;
  json.key("bytes");
  const std::string_view bytes = names.model.token_bytes(token.token);
  if (bytes.empty()) {
    json.null();
    return;
  }
  json.begin_array();
  for (const char c : bytes) json.value(static_cast<int>(static_cast<unsigned char>(c)));
  json.end_array();
}

}  // namespace

std::string TokenNames::text_of(TokenId id) const {
  const std::string_view bytes = model.token_bytes(id);
  if (bytes.empty()) return id_of(id);
  if (utf8::valid(bytes)) return std::string(bytes);
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string name = "bytes:";
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    name += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return name;
}

namespace {

/// A token with its alternatives.
void write_place(JsonWriter& json, const TokenNames& names, const KeptTokens& tokens, std::size_t i,
                 bool bytes) {
  json.begin_object();
  write_token(json, names, tokens.chosen(i), bytes);
  json.key("top_logprobs").begin_array();
  tokens.each_alternative(i, [&](const TokenLogprob& token) {
    json.begin_object();
    write_token(json, names, token, bytes);
    json.end_object();
  });
  json.end_array().end_object();
}

}  // namespace

void write_text_logprobs(JsonWriter& json, const TokenNames& names, const KeptTokens& tokens,
                         const TextLogprobs& what) {
  json.key("logprobs").begin_array();
  for (std::size_t i = what.first; i < tokens.size(); ++i)
    write_place(json, names, tokens, i, what.bytes);
  json.end_array();
}

bool write_chat_logprobs(JsonWriter& json, const TokenNames& names, const KeptTokens& tokens,
                         LogprobsPlace& place, std::size_t bytes_max) {
  if (!std::exchange(place.open, true)) json.begin_object().key("content").begin_array();
  for (; place.row < tokens.size(); ++place.row) {
    if (json.text().size() >= bytes_max) return false;
    write_place(json, names, tokens, place.row, true);
  }
  json.end_array().end_object();
  return true;
}

namespace {

/// The token that is there comes first, then the most likely ones.
void write_position(JsonWriter& json, const TokenNames& names, const EchoedPrompt& prompt,
                    std::size_t i) {
  const TokenLogprob& chosen = prompt.logprobs.chosen(i);
  std::size_t rank = 0, chosen_rank = 0;
  const auto find = [&](const TokenLogprob& token) {
    ++rank;
    if (token.token == chosen.token) chosen_rank = rank;
  };
  const auto entry = [&](const TokenLogprob& token, std::size_t of) {
    json.key(std::to_string(token.token)).begin_object().member("logprob", token.logprob);
    json.key("rank");
    if (of == 0) {
      json.null();
    } else {
      json.value(of);
    }
    json.key("decoded_token");
    if (names.model.has_tokenizer()) {
      json.value(names.text_of(token.token));
    } else {
      json.null();
    }
    json.end_object();
  };
  json.begin_object();
  prompt.logprobs.each_alternative(i, find, prompt.alternatives);
  entry(chosen, chosen_rank);
  rank = 0;
  prompt.logprobs.each_alternative(
      i,
      [&](const TokenLogprob& token) {
        ++rank;
        if (token.token != chosen.token) entry(token, rank);
      },
      prompt.alternatives);
  json.end_object();
}

}  // namespace

bool write_prompt_logprobs(JsonWriter& json, const TokenNames& names, const EchoedPrompt& prompt,
                           LogprobsPlace& place, std::size_t bytes_max) {
  if (!std::exchange(place.open, true)) json.begin_array();
  for (; place.row < prompt.tokens.size(); ++place.row) {
    if (json.text().size() >= bytes_max) return false;
    if (place.row == 0 || place.row > prompt.logprobs.size()) {
      json.null();
    } else {
      write_position(json, names, prompt, place.row - 1);
    }
  }
  json.end_array();
  return true;
}

bool CompletionLogprobs::write(JsonWriter& json, LogprobsPlace& place,
                               std::size_t bytes_max) const {
  const std::size_t rows = prompt_rows() + tokens_.size();
  if (!std::exchange(place.open, true)) json.begin_object().key(kLists[0]).begin_array();
  for (;;) {
    for (; place.row < rows; ++place.row) {
      if (json.text().size() >= bytes_max) return false;
      write_cell(json, place.list, place.row);
    }
    json.end_array();
    if (++place.list == kLists.size()) break;
    place.row = 0;
    json.key(kLists[place.list]).begin_array();
  }
  json.end_object();
  return true;
}

TokenId CompletionLogprobs::token(std::size_t row) const {
  return row < prompt_rows() ? prompt_->tokens[row] : tokens_.chosen(row - prompt_rows()).token;
}

void CompletionLogprobs::write_cell(JsonWriter& json, std::size_t list, std::size_t row) const {
  if (list == 0) return write_offset(json, row);
  if (list == 2) {
    json.value(names_.of(token(row)));
    return;
  }
  const bool of_prompt = row < prompt_rows();
  const KeptTokens& of = of_prompt ? prompt_->logprobs : tokens_;
  // A prompt's first token has no log-probability.
  const std::size_t i = of_prompt ? row - 1 : row - prompt_rows();
  if (i >= of.size()) {
    json.null();
  } else if (list == 1) {
    json.value(of.chosen(i).logprob);
  } else {
    write_top(json, of, i, of_prompt ? prompt_->alternatives : static_cast<std::size_t>(-1));
  }
}

void CompletionLogprobs::write_offset(JsonWriter& json, std::size_t row) const {
  const TokenId id = token(row);
  std::string_view bytes = names_.model.token_bytes(id);
  if (row < prompt_rows()) {
    // What the tokenizer added to a client's text, its BOS or EOS, is not in that text.
    const bool last = row + 1 == prompt_rows();
    const bool begins = row == 0 && !prompt_->text.starts_with(bytes);
    const bool ends = last && !prompt_->text.ends_with(bytes);
    if ((begins || ends) && names_.model.is_special(id)) bytes = {};
    json.value(offsets_.next(bytes));
    if (last) offsets_.end_text();
  } else {
    if (!names_.special_in_text && names_.model.is_special(id)) bytes = {};
    json.value(offsets_.next(bytes));
  }
}

void CompletionLogprobs::write_top(JsonWriter& json, const KeptTokens& of, std::size_t i,
                                   std::size_t most) const {
  // Different tokens may read the same, and JSON names must not repeat: the one that is there has
  // its name to itself.
  const TokenLogprob& chosen = of.chosen(i);
  std::vector<std::string> seen = {names_.of(chosen.token)};
  bool shown = false;
  json.begin_object();
  of.each_alternative(
      i,
      [&](const TokenLogprob& token) {
        if (token.token == chosen.token) {
          shown = true;
          json.member(seen.front(), token.logprob);
          return;
        }
        std::string name = names_.of(token.token);
        if (std::ranges::find(seen, name) != seen.end()) name = TokenNames::id_of(token.token);
        json.member(name, token.logprob);
        seen.push_back(std::move(name));
      },
      most);
  if (!shown) json.member(seen.front(), chosen.logprob);
  json.end_object();
}

}  // namespace troupe
