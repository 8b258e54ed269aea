#include <cstdio>
#include <iostream>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "actors/frontend/text_ends.h"
#include "model/chat/chat_format.h"
#include "model/generation_config.h"
#include "model/spec/read_spec.h"
#include "model/tokenizer/tokenizer.h"
#include "tools/troupe/call.h"
#include "tools/troupe/commands.h"
#include "tools/troupe/pull/hub_cache.h"

namespace troupe::cli {
namespace {

struct TokenizeOptions {
  std::string model;
  bool decode = false, add_special_tokens = false, ends = false, json = false;
};

using nlohmann::json;

Result<std::string> encode_line(const Tokenizer& tokenizer, const TokenizeOptions& o,
                                const std::string& line) {
  std::string text = line;
  if (o.json) {
    const json value = json::parse(line, nullptr, false);
    if (!value.is_string()) return invalid_argument("A line of input is not a JSON string.");
    text = value.get<std::string>();
  }
  auto ids = tokenizer.encode(text, o.add_special_tokens);
  if (!ids.ok()) return ids.error();
  if (o.json) return json(*ids).dump();
  std::string out;
  for (const TokenId id : *ids) out += (out.empty() ? "" : " ") + std::to_string(id);
  return out;
}

/// The ids of a line; none if it holds something else. Ids without a token are skipped when
/// decoded, as Hugging Face does.
std::optional<std::vector<TokenId>> ids_of(const std::string& line, bool as_json) {
  std::vector<std::int64_t> numbers;
  if (as_json) {
    const json value = json::parse(line, nullptr, false);
    if (!value.is_array()) return std::nullopt;
    for (const auto& item : value) {
      if (!item.is_number_integer()) return std::nullopt;
      numbers.push_back(item.get<std::int64_t>());
    }
  } else {
    std::istringstream in(line);
    for (std::int64_t number = 0; in >> number;) numbers.push_back(number);
    if (!in.eof()) return std::nullopt;
  }
  std::vector<TokenId> ids;
  for (const std::int64_t number : numbers) {
    if (number < 0 || number > std::numeric_limits<TokenId>::max()) return std::nullopt;
    ids.push_back(static_cast<TokenId>(number));
  }
  return ids;
}

Result<std::string> decode_line(const Tokenizer& tokenizer, const TokenizeOptions& o,
                                const std::string& line) {
  const auto ids = ids_of(line, o.json);
  if (!ids)
    return invalid_argument(o.json ? "A line of input is not a JSON array of token ids."
                                   : "A line of input holds something else than token ids.");
  const std::string text = tokenizer.decode(*ids, false);
  return o.json ? json(text).dump() : text;
}

/// Which tokens begin texts and end answers. A folder may have nothing but a tokenizer.
int run_ends(const TokenizeOptions& o, const std::string& folder, const Tokenizer& tokenizer) {
  const auto told = load_model_spec(folder);
  if (!told.ok() && told.error().code != ErrorCode::kNotFound) return fail(told.error());
  ModelSpec spec;
  if (told.ok())
    spec = *told;
  else
    spec.vocab = tokenizer.vocab_size();
  const auto generation = load_generation_config(folder);
  if (!generation.ok()) return fail(generation.error());
  const TextEnds ends = find_text_ends({*generation, spec, &tokenizer, ChatFormat::load(folder)});
  if (!o.json) {
    std::cout << describe(ends, &tokenizer) << std::endl;
    return kDone;
  }
  json out = {{"begin", ends.begin}, {"chat_begin", nullptr}, {"end", json::array()}};
  if (ends.chat_begin) out["chat_begin"] = *ends.chat_begin;
  for (const EndToken& end : ends.end)
    out["end"].push_back({{"id", end.id},
                          {"text", tokenizer.decode(std::vector{end.id}, false)},
                          {"told_by", end.told_by}});
  std::cout << out.dump() << std::endl;
  return kDone;
}

int run(const TokenizeOptions& o) {
  if (o.model.empty())
    return fail(invalid_argument("Say whose tokenizer with --model FOLDER."), kUsage);
  const std::string folder = pull::model_folder(o.model);
  auto tokenizer = Tokenizer::load(folder);
  if (!tokenizer.ok()) return fail(tokenizer.error());
  if (o.ends) return run_ends(o, folder, **tokenizer);
  std::ios::sync_with_stdio(false);
  std::string line;
  while (std::getline(std::cin, line)) {
    if (o.json && line.empty()) continue;
    auto out = o.decode ? decode_line(**tokenizer, o, line) : encode_line(**tokenizer, o, line);
    if (!out.ok()) {
      std::cout.flush();
      return fail(out.error());
    }
    std::cout << *out << '\n';
    // A program that talks to it line by line gets each answer at once.
    if (std::cin.rdbuf()->in_avail() <= 0) std::cout.flush();
  }
  std::cout.flush();
  return kDone;
}

}  // namespace

Command tokenize_command() {
  auto o = std::make_shared<TokenizeOptions>();
  return {.name = "tokenize",
          .description = "Lines of text in, lines of token ids out, or back",
          .examples =
              "  echo 'What is brandy?' | troupe tokenize --model tools/demo/pocket-dictionary\n"
              "  echo '\"a\\nb\"' | troupe tokenize --model DIR --json\n"
              "  echo '[5, 6]' | troupe tokenize --model DIR --decode --json\n"
              "  troupe tokenize --model DIR --ends --json",
          .flags = {{"--model", &o->model,
                     "A folder with tokenizer.json or tiktoken.model, or a GGUF file"},
                    {"--decode", &o->decode, "Ids in, text out"},
                    {"--add-special-tokens", &o->add_special_tokens,
                     "Add what the tokenizer's files ask for, such as the BOS"},
                    {"--ends", &o->ends,
                     "Say which tokens begin texts and end answers, and read nothing"},
                    {"--json", &o->json,
                     "One JSON string in, one array out, a line each; with --ends one object"}},
          .run = [o](const Call&) { return run(*o); },
          .keeps_state = false};
}

}  // namespace troupe::cli
