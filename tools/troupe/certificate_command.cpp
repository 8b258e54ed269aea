#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "actors/api/cluster.h"
#include "actors/control/certificate_life.h"
#include "actors/control/credentials.h"
#include "actors/control/file_lock.h"
#include "actors/control/private_file.h"
#include "actors/control/renewal.h"
#include "actors/control/token_book.h"
#include "runtime/clock.h"
#include "runtime/limits.h"
#include "tools/troupe/call.h"
#include "tools/troupe/cluster_files.h"
#include "tools/troupe/commands.h"
#include "tools/troupe/lifetime.h"
#include "tools/troupe/worker_certificate.h"

namespace troupe::cli {
namespace {

using nlohmann::literals::operator""_json_pointer;

struct CertificateOptions {
  std::string join;
  std::string revoked;
  std::string lifetime = "365d";
  bool json = false;
};

struct Shown {
  std::string name;
  std::string certificate;              ///< see certificate_name
  std::optional<CertificateLife> life;  ///< none: of one that was revoked, and is elsewhere
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
  const auto called = certificate_name(pem);
  if (!life.ok() || !called.ok())
    return Error{ErrorCode::kCorrupt,
                 "The " + name + ": " + (life.ok() ? called.error() : life.error()).message + "."};
  all.push_back({name, *called, *life});
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
    for (const std::string& revoked : credentials->head.revoked)
      all.push_back({"revoked", revoked, std::nullopt});
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
  constexpr const char* kRow = "%-10s %-16s  %-20s %-20s %s\n";
  if (!o.json) std::printf(kRow, "NAME", "CERTIFICATE", "BEGAN", "ENDS", "LEFT");
  for (const auto& [name, certificate, life] : *all) {
    values.push_back({{"name", name}, {"certificate", certificate}});
    if (life) values.back().update({{"begins", life->begins_s}, {"ends", life->ends_s}});
    if (o.json) continue;
    std::printf(kRow, name.c_str(), certificate.c_str(),
                life ? local_time_text(life->begins_s).c_str() : "-",
                life ? local_time_text(life->ends_s).c_str() : "-",
                life ? left_text(life->ends_s - unix_seconds()).c_str() : "-");
  }
  if (o.json) std::printf("%s\n", values.dump().c_str());
  return kDone;
}

/// Has `next_of` make a file's next text of the one that is there, and puts that in its place:
/// again if a running head or worker was faster.
Status rewrite(const std::filesystem::path& path, std::size_t bytes_max,
               const std::function<Result<std::string>(const std::string&)>& next_of) {
  constexpr std::chrono::seconds kPatience(10);
  constexpr std::chrono::milliseconds kPause(20);
  Status replaced;
  for (const TimePoint deadline = now() + kPatience;; std::this_thread::sleep_for(kPause)) {
    const auto text = control::read_small_file(path, bytes_max);
    if (!text.ok()) return text.error();
    const auto next = next_of(*text);
    if (!next.ok()) return next.error();
    replaced = control::replace_private_file(path, *text, *next, bytes_max);
    if (replaced.ok() || now() >= deadline) return replaced;
  }
}

/// Of a state folder: what becomes of its certificates, and of the join file with them.
using NextCredentials = std::function<Result<ClusterCredentials>(ClusterCredentials)>;
Status rewrite_credentials(const std::string& join_path, const NextCredentials& next_of) {
  const auto folder = std::filesystem::path(join_path).parent_path();
  // Says what is to be done about a file that cannot be used.
  if (const auto there = load_or_create(folder); !there.ok()) return there.error();
  ClusterCredentials made;
  const Status renewed =
      rewrite(folder / kCredentialsFile, kCredentialsBytesMax,
              [&](const std::string& text) -> Result<std::string> {
                auto old = parse_cluster_credentials(text);
                if (!old.ok()) return old.error();
                auto next = next_of(std::move(*old));
                if (!next.ok()) return next.error();
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

Result<ClusterCredentials> renewed(const ClusterCredentials& old, RenewedSides sides,
                                   std::int64_t lifetime_s) {
  auto next = renew_cluster_credentials(old, sides, lifetime_s);
  if (next.ok()) return next;
  return Error{next.error().code, "Nothing can be renewed: " + next.error().message + "."};
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
  const Status done =
      at_head ? rewrite_credentials(join_path,
                                    [&](const ClusterCredentials& old) {
                                      return renewed(old, {}, *lifetime);
                                    })
              : renew_by_the_head(join_path);
  if (!done.ok()) return fail(done.error());
  std::fprintf(stderr, "Renewed; a %s that runs takes it within seconds.\n",
               at_head ? "head" : "worker");
  return list(common, o);
}

/// The status of the head that runs; an empty object: none does.
Result<nlohmann::json> running_status(const std::string& state_dir) {
  if (!ClusterFiles::in_use(state_dir)) return nlohmann::json::object();
  const auto join = find_join_file(state_dir);
  if (!join.ok()) return join.error();
  const auto cluster = Cluster::connect(*join, std::chrono::seconds(2));
  if (!cluster.ok()) return no_head(cluster.error(), state_dir);
  const auto status = (*cluster)->status_json();
  if (!status.ok()) return status.error();
  auto told = nlohmann::json::parse(*status, nullptr, false);
  if (!told.is_object()) return corrupt("The head's status is no JSON.");
  return told;
}

/// The name of the certificate that a node of the cluster has shown, and no other one.
Result<std::string> certificate_of(const std::string& node, const std::string& shared,
                                   const nlohmann::json& status) {
  std::map<std::string, std::string> names;
  for (const auto& entry : status.value("nodes", nlohmann::json::array()))
    names[entry.value("id", "")] = entry.value("certificate", "");
  const auto found = names.find(node);
  if (found == names.end())
    return not_found("There is no " + node +
                     " in the running cluster; `troupe status` tells which there are.");
  const std::string& name = found->second;
  if (!is_certificate_name(name))
    return unavailable("The head does not know the certificate of " + node + ".");
  const auto holders =
      std::ranges::count_if(names, [&](const auto& entry) { return entry.second == name; });
  if (name == shared || holders > 1)
    return refused(node +
                   " came by a join file that was copied, and shares its certificate with every "
                   "worker that has such a copy; `troupe certificate revoke " +
                   name + "` cuts off all of them.");
  return name;
}

/// Writes down that the name is taken no more; where it is the join file's, that gets another.
Status revoke_name(const std::string& join_path, const std::string& name) {
  return rewrite_credentials(join_path, [&](ClusterCredentials old) -> Result<ClusterCredentials> {
    auto& revoked = old.head.revoked;
    if (std::ranges::find(revoked, name) != revoked.end()) return old;
    if (revoked.size() == kRevokedMax)
      return resource_exhausted(std::to_string(kRevokedMax) +
                                " certificates are revoked already; make a new cluster.");
    revoked.push_back(name);
    const auto joins_by = certificate_name(old.worker.certificate);
    if (!joins_by.ok() || *joins_by != name) return old;
    return renewed(old, {.head = false, .renames = true}, kCertificateLifetimeS);
  });
}

/// Ways that are open still to who held it.
void tell_what_is_left(const std::string& state_dir, const nlohmann::json& status) {
  std::string good;
  const auto tokens = TokenBook(state_dir).list();
  if (tokens.ok())
    for (const KeptToken& token : *tokens)
      if (!token.expired(unix_seconds()) && (!token.once || token.used_s == 0))
        good += (good.empty() ? "" : ", ") + token.name;
  if (!good.empty())
    std::fprintf(stderr,
                 "Who knows a token that is still good comes in again, by another name: %s "
                 "(`troupe token revoke`).\n",
                 good.c_str());
  if (status.value("/cluster/standby"_json_pointer, nlohmann::json()).is_object())
    std::fprintf(stderr, "The standby has a state folder of its own: say the same there.\n");
}

int revoke(const CommonOptions& common, const CertificateOptions& o) {
  const std::string join_path = join_path_of(common, o);
  if (!at_the_head(common, o))
    return fail_with(
        invalid_argument("Certificates are revoked at the head: " + common.state_dir +
                         " is no head's state folder (--state-dir)."));
  const auto credentials = load_or_create(std::filesystem::path(join_path).parent_path());
  if (!credentials.ok()) return fail(credentials.error());
  const auto shared = certificate_name(credentials->worker.certificate);
  if (!shared.ok()) return fail(shared.error());
  const auto status = running_status(common.state_dir);
  if (!status.ok()) return fail(status.error());
  std::string name = o.revoked;
  if (!is_certificate_name(name)) {
    if (!parse_node(name).ok())
      return fail_with(
          invalid_argument("'" + name +
                           "' is neither a node, such as node-3, nor a certificate's name, 16 "
                           "digits as `troupe certificate list` and `troupe status --json` tell "
                           "them."));
    const auto found = certificate_of(name, *shared, *status);
    if (!found.ok()) return fail(found.error());
    name = *found;
  }
  if (const auto own = certificate_name(credentials->head.certificate); own.ok() && *own == name)
    return fail_with(invalid_argument(
        "That is the head's own certificate, which is no worker's: if its key is stolen, make a "
        "new cluster in another state folder."));
  const bool has_standby =
      status->value("/cluster/standby"_json_pointer, nlohmann::json()).is_object();
  if (name == *shared && has_standby)
    return fail(refused(
        "The standby follows the head by that certificate, too, and would take over when it is "
        "cut off with the workers: stop it first. Then copy credentials.pem to it again, and start "
        "it."));
  if (const Status done = revoke_name(join_path, name); !done.ok()) return fail(done.error());
  std::fprintf(stderr, "%s is revoked; a head that runs cuts its holders off within seconds.\n",
               name.c_str());
  if (name == *shared)
    std::fprintf(stderr, "It was the join file's: give every worker that had a copy the new %s.\n",
                 join_path.c_str());
  tell_what_is_left(common.state_dir, *status);
  return kDone;
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

Command certificate_revoke_command() {
  auto o = std::make_shared<CertificateOptions>();
  return {.name = "revoke",
          .description = "Take a certificate, and what it is renewed by, no more",
          .notes =
              "At the head, and at its standby, which has a state folder of its own. Who holds\n"
              "the certificate is cut off; what it computed is computed again elsewhere. It comes\n"
              "in again with a token that is still good, and not without.",
          .examples =
              "  troupe certificate revoke node-3\n"
              "  troupe certificate revoke 1f00ab34c2d5e6f7",
          .flags = {{.name = "WHO",
                     .target = &o->revoked,
                     .help = "A node of the running cluster, or the name of its certificate, as "
                             "`troupe status --json` has it",
                     .required = true}},
          .run = [o](const Call& call) { return revoke(call.common, *o); }};
}

}  // namespace

Command certificate_command() {
  return {.name = "certificate",
          .description = "The cluster's certificates: until when they are good",
          .notes = "Head and workers renew theirs by themselves, in time.",
          .examples =
              "  troupe certificate list\n"
              "  troupe certificate renew\n"
              "  troupe certificate revoke node-3",
          .below = {certificate_list_command(), certificate_renew_command(),
                    certificate_revoke_command()}};
}

}  // namespace troupe::cli
