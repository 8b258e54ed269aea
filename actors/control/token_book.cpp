#include "actors/control/token_book.h"

#include <openssl/crypto.h>

#include <algorithm>
#include <charconv>

#include "actors/control/credential_text.h"
#include "actors/control/file_lock.h"
#include "actors/control/private_file.h"

namespace troupe {
namespace {

constexpr std::string_view kTokensTitle = "troupe-tokens 1";
constexpr std::size_t kTokensBytesMax = 64u << 10;
constexpr std::size_t kHashLength = 64;

/// The next word of a line; empty at its end.
std::string_view next_word(std::string_view& line) {
  const std::size_t end = std::min(line.find(' '), line.size());
  const std::string_view word = line.substr(0, end);
  line.remove_prefix(std::min(end + 1, line.size()));
  return word;
}

bool read_seconds(std::string_view word, std::int64_t& to) {
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), to);
  return error == std::errc() && end == word.data() + word.size() && to >= 0;
}

std::optional<KeptToken> token_of(std::string_view line) {
  KeptToken token;
  token.name = next_word(line);
  token.secret_hash = next_word(line);
  const std::string_view uses = next_word(line);
  token.once = uses == "once";
  const bool good = read_seconds(next_word(line), token.created_s) &&
                    read_seconds(next_word(line), token.expires_s) &&
                    read_seconds(next_word(line), token.used_s);
  token.used_by = next_word(line);
  if (!good || !line.empty() || !is_token_name(token.name) || (!token.once && uses != "many") ||
      token.secret_hash.size() != kHashLength ||
      (!token.used_by.empty() && token.used_by.size() != kHashLength))
    return std::nullopt;
  return token;
}

auto place_of(std::vector<KeptToken>& tokens, std::string_view name) {
  return std::ranges::find(tokens, name, &KeptToken::name);
}

Status take(KeptToken& token, std::string_view request, std::int64_t now_s) {
  const std::string by = sha256_hex(request);
  if (token.once && token.used_s != 0 && token.used_by == by) return {};
  if (token.once && token.used_s != 0)
    return refused("The token " + token.name +
                   " works once and was used already; make another with `troupe token create`.");
  if (token.expired(now_s))
    return refused("The token " + token.name +
                   " has expired; make another with `troupe token create`.");
  if (!token.once) return {};
  token.used_s = now_s;
  token.used_by = by;
  return {};
}

bool has_secret(const KeptToken& token, const std::string& secret) {
  const std::string hash = sha256_hex(secret);
  return CRYPTO_memcmp(hash.data(), token.secret_hash.data(), kHashLength) == 0;
}

}  // namespace

std::string format_tokens(const std::vector<KeptToken>& tokens) {
  std::vector<control::Entry> entries;
  for (const KeptToken& t : tokens)
    entries.emplace_back("token", t.name + " " + t.secret_hash + (t.once ? " once " : " many ") +
                                      std::to_string(t.created_s) + " " +
                                      std::to_string(t.expires_s) + " " + std::to_string(t.used_s) +
                                      (t.used_by.empty() ? "" : " " + t.used_by));
  return control::format_entries(kTokensTitle, entries);
}

Result<std::vector<KeptToken>> parse_tokens(std::string_view text) {
  const auto entries = control::parse_entries(kTokensTitle, text);
  if (!entries.ok()) return entries.error();
  std::vector<KeptToken> tokens;
  for (const auto& [key, value] : *entries) {
    auto token = key == "token" ? token_of(value) : std::nullopt;
    if (!token) return corrupt("has a line that is no token");
    if (tokens.size() == kTokensKeptMax) return corrupt("has too many tokens");
    tokens.push_back(std::move(*token));
  }
  return tokens;
}

TokenBook::TokenBook(const std::filesystem::path& state_dir)
    : path_((state_dir / "tokens").string()) {}

Result<TokenBook::Tokens> TokenBook::read() const {
  const auto text = control::read_small_file(path_, kTokensBytesMax);
  if (!text.ok() && text.error().code == ErrorCode::kNotFound) return Tokens();
  if (!text.ok()) return text.error();
  auto tokens = parse_tokens(*text);
  if (tokens.ok()) return tokens;
  return corrupt("The file " + path_ + " " + tokens.error().message +
                 "; remove it, and make the tokens again.");
}

Status TokenBook::edit(const std::function<Status(Tokens&)>& change) {
  const auto lock = control::FileLock::take(path_ + ".lock", control::FileLock::IfMissing::kMake);
  if (!lock.ok()) return lock.error();
  auto tokens = read();
  if (!tokens.ok()) return tokens.error();
  const std::string before = format_tokens(*tokens);
  if (const Status changed = change(*tokens); !changed.ok()) return changed;
  const std::string after = format_tokens(*tokens);
  if (after == before) return {};
  return control::write_private_file(path_, after, control::IfExists::kReplace);
}

Result<JoinToken> TokenBook::create(const std::string& ca_hash, bool once,
                                    std::optional<std::int64_t> lifetime_s, std::int64_t now_s) {
  auto drawn = draw_join_token(ca_hash);
  if (!drawn.ok()) return drawn.error();
  KeptToken kept{drawn->name, sha256_hex(drawn->secret), once, now_s, 0, 0, {}};
  if (lifetime_s) kept.expires_s = now_s + *lifetime_s;
  const Status added = edit([&](Tokens& tokens) -> Status {
    if (tokens.size() >= kTokensKeptMax)
      std::erase_if(tokens, [&](const KeptToken& t) { return t.expired(now_s) || t.used_s != 0; });
    if (tokens.size() >= kTokensKeptMax)
      return resource_exhausted("There are " + std::to_string(kTokensKeptMax) +
                                " tokens already; revoke some with `troupe token revoke`.");
    if (place_of(tokens, kept.name) != tokens.end())
      return unavailable("A token of this name is there already; try again.");
    tokens.push_back(kept);
    return {};
  });
  if (!added.ok()) return added.error();
  return drawn;
}

Result<std::vector<KeptToken>> TokenBook::list() const { return read(); }

Status TokenBook::remove(const std::string& name) {
  return edit([&](Tokens& tokens) -> Status {
    const auto at = place_of(tokens, name);
    if (at == tokens.end())
      return not_found("There is no token '" + name + "'; `troupe token list` names them.");
    tokens.erase(at);
    return {};
  });
}

bool TokenBook::knows(const std::string& name, const std::string& secret) const {
  auto tokens = read();
  if (!tokens.ok()) return false;
  const auto at = place_of(*tokens, name);
  return at != tokens->end() && has_secret(*at, secret);
}

Status TokenBook::redeem(const std::string& name, const std::string& secret,
                         std::string_view request, std::int64_t now_s) {
  return edit([&](Tokens& tokens) -> Status {
    const auto at = place_of(tokens, name);
    if (at == tokens.end())
      return not_found("The head knows no token " + name +
                       ": it was deleted, or never made; make one with `troupe token create`.");
    if (!has_secret(*at, secret))
      return not_found("The secret of the token " + name +
                       " is wrong; copy the token whole, as `troupe token create` printed it.");
    return take(*at, request, now_s);
  });
}

}  // namespace troupe
