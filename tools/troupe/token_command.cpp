#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "actors/control/certificate_life.h"
#include "actors/control/credentials.h"
#include "actors/control/token_book.h"
#include "tools/troupe/cli.h"
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

int remove(const CommonOptions& common, const std::string& name) {
  const Status removed = TokenBook(common.state_dir).remove(name);
  return removed.ok() ? kDone : fail(removed.error());
}

}  // namespace

void add_token(Cli& cli) {
  CLI::App* token = cli.app.add_subcommand("token", "Tokens by which workers join the cluster");
  token->require_subcommand(1);
  token->footer(
      "On the head's machine; a running head knows them at once.\n"
      "Examples:\n"
      "  troupe token create --once\n"
      "  troupe token list\n"
      "  troupe token delete 1f00ab34");
  auto o = std::make_shared<TokenCreateOptions>();
  CLI::App* create_command = token->add_subcommand("create", "Make a token and print it");
  set_up_command(cli, create_command,
                 "  troupe token create --once\n"
                 "  troupe token create --expires never\n"
                 "  ssh worker-3 troupe worker --head head:6379 --token \"$(troupe token create)\"",
                 {[&cli, o] { return create(cli.common, *o); }});
  create_command->add_flag("--once", o->once, "It lets one worker in, then no longer works");
  create_command->add_option("--expires", o->expires,
                             "How long it works: 30m, 24h, 7d or never (default: 24h)");
  auto json = std::make_shared<bool>(false);
  CLI::App* list_command = token->add_subcommand("list", "Name the tokens; secrets are not kept");
  set_up_command(cli, list_command, "  troupe token list\n  troupe token list --json",
                 {[&cli, json] { return list(cli.common, *json); }});
  list_command->add_flag("--json", *json, "Print one JSON array instead");
  auto name = std::make_shared<std::string>();
  CLI::App* delete_command =
      token->add_subcommand("delete", "Let nobody in by a token any more; members stay");
  set_up_command(cli, delete_command, "  troupe token delete 1f00ab34",
                 {[&cli, name] { return remove(cli.common, *name); }});
  delete_command->add_option("NAME", *name, "As `troupe token list` names it")->required();
}

}  // namespace troupe::cli
