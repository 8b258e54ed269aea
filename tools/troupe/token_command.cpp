#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "actors/control/certificate_life.h"
#include "actors/control/credentials.h"
#include "actors/control/join_token.h"
#include "actors/control/token_book.h"
#include "tools/troupe/call.h"
#include "tools/troupe/commands.h"
#include "tools/troupe/lifetime.h"

namespace troupe::cli {
namespace {

struct TokenCreateOptions {
  bool once = false;
  std::string expires = "24h";
};

std::string state_of(const KeptToken& token) {
  if (token.used_s != 0) return "used";
  return token.expired(unix_seconds()) ? "expired" : "good";
}

int create(const CommonOptions& common, const TokenCreateOptions& o) {
  const auto lifetime = parse_lifetime("--expires", o.expires);
  if (!lifetime.ok()) return fail_with(lifetime.error());
  // A head that starts later takes the certificates that are made here.
  const auto credentials = load_or_create(common.state_dir);
  if (!credentials.ok()) return fail(credentials.error());
  if (credentials->ca_key.empty()) return fail(refused(std::string(kNoTokensSentence)));
  const auto token = TokenBook(common.state_dir)
                         .create(certificate_hash(credentials->head.ca_certificate), o.once,
                                 *lifetime, unix_seconds());
  if (!token.ok()) return fail(token.error());
  const auto join = read_join_file(common.state_dir + "/join");
  std::fprintf(stderr, "Run on %s: troupe worker --head %s --token\n",
               o.once ? "one worker" : "each worker",
               join.ok() ? join->heads.front().c_str() : "HOST:PORT");
  std::printf("%s\n", format_join_token(*token).c_str());
  return kDone;
}

int list(const CommonOptions& common, bool as_json) {
  const auto tokens = TokenBook(common.state_dir).list();
  if (!tokens.ok()) return fail(tokens.error());
  nlohmann::json all = nlohmann::json::array();
  if (!as_json && !tokens->empty())
    std::printf("%-12s %-6s %-8s %-20s %s\n", "NAME", "WORKS", "STATE", "CREATED", "EXPIRES");
  for (const KeptToken& t : *tokens) {
    const std::string expires = t.expires_s == 0 ? "never" : local_time_text(t.expires_s);
    if (!as_json)
      std::printf("%-12s %-6s %-8s %-20s %s\n", t.name.c_str(), t.once ? "once" : "often",
                  state_of(t).c_str(), local_time_text(t.created_s).c_str(), expires.c_str());
    all.push_back({{"name", t.name},
                   {"once", t.once},
                   {"state", state_of(t)},
                   {"created", t.created_s},
                   {"expires", t.expires_s == 0 ? nlohmann::json() : nlohmann::json(t.expires_s)}});
  }
  if (as_json) std::printf("%s\n", all.dump().c_str());
  return kDone;
}

/// `text`: its name, or all of it, which is a secret and never said again.
int remove(const CommonOptions& common, const std::string& text) {
  const auto whole = parse_join_token(text);
  const std::string& name = whole.ok() ? whole->name : text;
  if (!is_token_name(name))
    return fail(invalid_argument("NAME is no token's name; `troupe token list` has them."));
  const Status removed = TokenBook(common.state_dir).remove(name);
  return removed.ok() ? kDone : fail(removed.error());
}

Command create_command() {
  auto o = std::make_shared<TokenCreateOptions>();
  return {.name = "create",
          .description = "Make a token and print it",
          .examples =
              "  troupe token create --once\n"
              "  troupe token create --expires never\n"
              "  ssh worker-3 troupe worker --head head:6379 --token \"$(troupe token create)\"",
          .flags = {{"--once", &o->once, "It lets one worker in, then no longer works"},
                    {"--expires", &o->expires,
                     "How long it works: 30m, 24h, 7d or never (default: 24h)"}},
          .run = [o](const Call& call) { return create(call.common, *o); }};
}

Command list_command() {
  auto json = std::make_shared<bool>(false);
  return {.name = "list",
          .description = "Name the tokens; secrets are not kept",
          .examples = "  troupe token list\n  troupe token list --json",
          .flags = {{"--json", json.get(), "Print one JSON array instead"}},
          .run = [json](const Call& call) { return list(call.common, *json); }};
}

Command revoke_command() {
  auto name = std::make_shared<std::string>();
  return {.name = "revoke",
          .description = "Let nobody in by a token any more; members stay",
          .examples = "  troupe token revoke 1f00ab34",
          .flags = {{.name = "NAME",
                     .target = name.get(),
                     .help = "As `troupe token list` names it",
                     .required = true}},
          .run = [name](const Call& call) { return remove(call.common, *name); }};
}

}  // namespace

Command token_command() {
  return {.name = "token",
          .description = "Tokens by which workers join the cluster",
          .notes = "On the head's machine; a running head knows them at once.",
          .examples =
              "  troupe token create --once\n"
              "  troupe token list\n"
              "  troupe token revoke 1f00ab34",
          .below = {create_command(), list_command(), revoke_command()}};
}

}  // namespace troupe::cli
