#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "actors/control/certificate_life.h"
#include "actors/control/credentials.h"
#include "actors/control/file_lock.h"
#include "actors/control/private_file.h"
#include "actors/control/renewal.h"
#include "runtime/limits.h"
#include "tools/troupe/call.h"
#include "tools/troupe/commands.h"
#include "tools/troupe/lifetime.h"
#include "tools/troupe/worker_certificate.h"

namespace troupe::cli {
namespace {

struct CertificateOptions {
  std::string join;
  std::string lifetime = "365d";
  bool json = false;
};

struct Shown {
  std::string name;
  CertificateLife life;
};

std::string join_path_of(const CommonOptions& common, const CertificateOptions& o) {
  return o.join.empty() ? common.state_dir + "/join" : o.join;
}

/// Whether this machine's certificates are those of a head's state folder.
bool at_the_head(const CommonOptions& common, const CertificateOptions& o) {
  return is_heads_own(join_path_of(common, o));
}

Status show(std::vector<Shown>& all, const std::string& name, const std::string& pem) {
  const auto life = life_of(pem);
  if (!life.ok())
    return Error{life.error().code, "The " + name + ": " + life.error().message + "."};
  all.push_back({name, *life});
  return {};
}

Result<std::vector<Shown>> shown(const CommonOptions& common, const CertificateOptions& o) {
  std::vector<Shown> all;
  Status good;
  if (at_the_head(common, o)) {
    const auto folder = std::filesystem::path(join_path_of(common, o)).parent_path();
    const auto credentials = load_or_create(folder);
    if (!credentials.ok()) return credentials.error();
    good = show(all, "ca", credentials->head.ca_certificate);
    if (good.ok()) good = show(all, "head", credentials->head.certificate);
    if (good.ok()) good = show(all, "join-file", credentials->worker.certificate);
  } else {
    const auto join = read_join_file(join_path_of(common, o));
    if (!join.ok()) return join.error();
    good = show(all, "ca", join->worker.ca_certificate);
    if (good.ok()) good = show(all, "worker", join->worker.certificate);
  }
  if (!good.ok()) return good.error();
  return all;
}

std::string left_text(std::int64_t seconds) {
  if (seconds <= 0) return "ended";
  if (seconds < 3600) return std::to_string(seconds / 60) + " min";
  if (seconds < 2 * 24 * 3600) return std::to_string(seconds / 3600) + " h";
  return std::to_string(seconds / (24 * 3600)) + " d";
}

int list(const CommonOptions& common, const CertificateOptions& o) {
  const auto all = shown(common, o);
  if (!all.ok()) return fail(all.error());
  nlohmann::json values = nlohmann::json::array();
  if (!o.json) std::printf("%-10s %-20s %-20s %s\n", "NAME", "BEGAN", "ENDS", "LEFT");
  for (const auto& [name, life] : *all) {
    if (!o.json)
      std::printf("%-10s %-20s %-20s %s\n", name.c_str(), local_time_text(life.begins_s).c_str(),
                  local_time_text(life.ends_s).c_str(),
                  left_text(life.ends_s - unix_seconds()).c_str());
    values.push_back({{"name", name}, {"begins", life.begins_s}, {"ends", life.ends_s}});
  }
  if (o.json) std::printf("%s\n", values.dump().c_str());
  return kDone;
}

/// Has `next_of` make a file's next text of the one that is there, and puts that in its place:
/// again if a running head or worker was faster.
Status rewrite(const std::filesystem::path& path, std::size_t bytes_max,
               const std::function<Result<std::string>(const std::string&)>& next_of) {
  constexpr int kTriesMax = 3;
  Status replaced;
  for (int i = 0; i < kTriesMax; ++i) {
    const auto text = control::read_small_file(path, bytes_max);
    if (!text.ok()) return text.error();
    const auto next = next_of(*text);
    if (!next.ok()) return next.error();
    replaced = control::replace_private_file(path, *text, *next, bytes_max);
    if (replaced.ok()) break;
  }
  return replaced;
}

Status renew_at_the_head(const std::string& join_path, std::int64_t lifetime_s) {
  const auto folder = std::filesystem::path(join_path).parent_path();
  // Says what is to be done about a file that cannot be used.
  if (const auto there = load_or_create(folder, lifetime_s); !there.ok()) return there.error();
  ClusterCredentials made;
  const Status renewed = rewrite(
      folder / kCredentialsFile, kCredentialsBytesMax,
      [&](const std::string& text) -> Result<std::string> {
        const auto old = parse_cluster_credentials(text);
        if (!old.ok()) return old.error();
        auto next = renew_cluster_credentials(*old, {}, lifetime_s);
        if (!next.ok())
          return Error{next.error().code, "Nothing can be renewed: " + next.error().message + "."};
        made = std::move(*next);
        return format_cluster_credentials(made);
      });
  if (!renewed.ok()) return renewed;
  const Status joined =
      rewrite(join_path, kJoinFileBytesMax, [&](const std::string& text) -> Result<std::string> {
        auto join = parse_join_file(text, join_path);
        if (!join.ok()) return join.error();
        join->worker = made.worker;
        return format_join_file(*join);
      });
  // What is not there, or no good, is written by the next head.
  return joined.ok() || joined.error().code != ErrorCode::kUnavailable ? Status() : joined;
}

Result<Credentials> asked_of(const JoinFile& join) {
  Error last = not_found("No head is known.");
  for (const std::string& head : join.heads) {
    const auto address = parse_host_port(head);
    if (!address.ok()) continue;
    auto next = renew_credentials(join.worker, *address, limits::kHandshakeDeadline);
    if (next.ok()) return next;
    last = next.error();
  }
  return last;
}

Status renew_by_the_head(const std::string& join_path) {
  if (const auto there = read_join_file(join_path); !there.ok()) return there.error();
  return rewrite(join_path, kJoinFileBytesMax, [&](const std::string& text) -> Result<std::string> {
    auto join = parse_join_file(text, join_path);
    if (!join.ok()) return join.error();
    auto next = asked_of(*join);
    if (!next.ok()) return next.error();
    join->worker = std::move(*next);
    return format_join_file(*join);
  });
}

int renew(const CommonOptions& common, const CertificateOptions& o) {
  const auto lifetime = parse_certificate_lifetime(o.lifetime);
  if (!lifetime.ok()) return fail_with(lifetime.error());
  const std::string join_path = join_path_of(common, o);
  const bool at_head = at_the_head(common, o);
  const Status renewed =
      at_head ? renew_at_the_head(join_path, *lifetime) : renew_by_the_head(join_path);
  if (!renewed.ok()) return fail(renewed.error());
  std::fprintf(stderr, "Renewed; a %s that runs takes it within seconds.\n",
               at_head ? "head" : "worker");
  return list(common, o);
}

std::vector<Flag> common_flags(CertificateOptions& o) {
  return {{"--join", &o.join, "A worker's join file (default: STATE/join)"},
          {"--json", &o.json, "Print one JSON array instead"}};
}

Command certificate_list_command() {
  auto o = std::make_shared<CertificateOptions>();
  return {.name = "list",
          .description = "Say when certificates here end",
          .examples = "  troupe certificate list\n  troupe certificate list --join ./join --json",
          .flags = common_flags(*o),
          .run = [o](const Call& call) { return list(call.common, *o); }};
}

Command certificate_renew_command() {
  auto o = std::make_shared<CertificateOptions>();
  Command command{
      .name = "renew",
      .description =
          "Make new ones now, with new keys: by the CA's key at the head, else by the head",
      .examples =
          "  troupe certificate renew\n"
          "  troupe certificate renew --certificate-lifetime 30d\n"
          "  troupe certificate renew --join ./join",
      .flags = common_flags(*o),
      .run = [o](const Call& call) { return renew(call.common, *o); }};
  command.flags.push_back({"--certificate-lifetime", &o->lifetime,
                           "How long the head's own is good, at the head (default: 365d)"});
  return command;
}

}  // namespace

Command certificate_command() {
  return {.name = "certificate",
          .description = "The cluster's certificates: until when they are good",
          .notes = "Head and workers renew theirs by themselves, in time.",
          .examples =
              "  troupe certificate list\n"
              "  troupe certificate renew",
          .below = {certificate_list_command(), certificate_renew_command()}};
}

}  // namespace troupe::cli
