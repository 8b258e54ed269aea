#include "tools/troupe/bench/sharegpt.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "tools/troupe/bench/limits.h"

namespace troupe::bench {
namespace {

using nlohmann::json;

constexpr std::uint64_t kBytesPerToken = 4;
constexpr std::uint64_t kTokensMin = 4, kQuestionTokensMax = 1024, kTogetherTokensMax = 2048;

std::optional<std::string> said(const json& turns, std::size_t number) {
  if (!turns.is_array() || turns.size() <= number || !turns[number].is_object())
    return std::nullopt;
  const auto value = turns[number].find("value");
  if (value == turns[number].end() || !value->is_string()) return std::nullopt;
  return value->get<std::string>();
}

}  // namespace

Result<std::vector<Conversation>> parse_sharegpt(std::string_view text) {
  const json list = json::parse(text, nullptr, false);
  if (!list.is_array()) return corrupt("it is no JSON list of conversations");
  std::vector<Conversation> found;
  for (const json& item : list) {
    if (!item.is_object() || !item.contains("conversations")) continue;
    auto question = said(item["conversations"], 0);
    const auto answer = said(item["conversations"], 1);
    if (!question || !answer) continue;
    const std::uint64_t asked = question->size() / kBytesPerToken;
    const std::uint64_t answered = answer->size() / kBytesPerToken;
    if (asked < kTokensMin || answered < kTokensMin || asked > kQuestionTokensMax ||
        asked + answered > kTogetherTokensMax)
      continue;
    found.push_back({std::move(*question), answered});
  }
  if (found.empty()) return corrupt("no conversation in it has a question and an answer of use");
  return found;
}

Result<std::vector<Conversation>> read_sharegpt(const std::string& path) {
  std::error_code failed;
  const auto bytes = std::filesystem::file_size(path, failed);
  if (failed) return not_found("The ShareGPT file '" + path + "': " + failed.message() + ".");
  if (bytes > kDatasetBytesMax)
    return resource_exhausted("The ShareGPT file '" + path + "' is larger than " +
                              std::to_string(kDatasetBytesMax >> 20) + " MiB.");
  std::ifstream file(path, std::ios::binary);
  std::string text(bytes, '\0');
  file.read(text.data(), static_cast<std::streamsize>(bytes));
  if (!file) return not_found("The ShareGPT file '" + path + "' cannot be read.");
  auto found = parse_sharegpt(text);
  if (!found.ok())
    return invalid_argument("The ShareGPT file '" + path + "': " + found.error().message + ".");
  return found;
}

}  // namespace troupe::bench
