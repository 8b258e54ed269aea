#include "actors/control/credentials.h"

#include <openssl/err.h>
#include <openssl/rand.h>

#include <array>

#include "actors/control/credential_text.h"
#include "actors/control/pem.h"
#include "actors/control/private_file.h"
#include "actors/control/signing.h"

namespace troupe {
namespace {

using control::CertificatePtr;
using control::KeyPtr;

constexpr std::string_view kCredentialsTitle = "troupe-credentials 1";
/// The CA's name is drawn at random, so that two clusters' are told apart early.
std::string random_name() {
  std::array<unsigned char, 8> bytes{};
  if (RAND_bytes(bytes.data(), bytes.size()) != 1) return "Troupe cluster";
  std::string name = "Troupe cluster ";
  for (const unsigned char byte : bytes) {
    name += "0123456789abcdef"[byte >> 4];
    name += "0123456789abcdef"[byte & 15];
  }
  return name;
}

/// Of a side, with a new key; empty if OpenSSL fails.
Credentials make_side(const control::Role& role, X509* ca, EVP_PKEY* ca_key,
                      const std::string& name = "") {
  ERR_clear_error();
  const KeyPtr key(EVP_EC_gen("P-256"));
  const CertificatePtr made =
      key && ca ? control::sign(role, key.get(), ca, ca_key, name) : nullptr;
  if (!made) return {};
  return {control::write_certificate(ca), control::write_certificate(made.get()),
          control::write_key(key.get())};
}

constexpr std::string_view kRevoked = "revoked";

/// The names that a file says are revoked, in its order.
Result<std::vector<std::string>> read_revoked(const std::vector<control::Entry>& entries) {
  std::vector<std::string> names;
  for (const auto& [key, value] : entries) {
    if (key != kRevoked) continue;
    if (!is_certificate_name(value))
      return corrupt("revokes '" + value.substr(0, 64) + "', which is no certificate's name");
    names.push_back(value);
  }
  if (names.size() > kRevokedMax)
    return corrupt("revokes more than " + std::to_string(kRevokedMax) + " certificates");
  return names;
}

Error cannot_be_made() {
  return internal_error(
      "The cluster's certificates cannot be made: " + control::take_openssl_error() + ".");
}

}  // namespace

Result<std::string> certificate_name(const std::string& pem) {
  const CertificatePtr certificate = control::read_certificate(pem);
  if (!certificate) return corrupt("it is no certificate");
  return control::name_of(certificate.get());
}

bool is_certificate_name(std::string_view text) {
  return text.size() == kCertificateNameLength &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

Result<ClusterCredentials> parse_cluster_credentials(std::string_view text) {
  auto entries = control::parse_entries(kCredentialsTitle, text);
  if (!entries.ok()) return entries.error();
  const auto value = [&](std::string_view key) { return control::only_value(*entries, key); };
  const std::string ca = value("ca-certificate");
  auto revoked = read_revoked(*entries);
  if (!revoked.ok()) return revoked.error();
  const ClusterCredentials credentials{
      {ca, value("head-certificate"), value("head-key"), std::move(*revoked)},
      {ca, value("worker-certificate"), value("worker-key")},
      value("ca-key")};
  for (const Credentials* side : {&credentials.head, &credentials.worker})
    if (const Status status = control::check_credentials(*side); !status.ok())
      return corrupt("is damaged: " + status.error().message);
  if (credentials.ca_key.empty()) return credentials;
  if (!control::check_credentials({ca, ca, credentials.ca_key}).ok())
    return corrupt("is damaged: its key of the CA does not belong to the CA's certificate");
  return credentials;
}

std::string format_cluster_credentials(const ClusterCredentials& credentials) {
  std::vector<control::Entry> entries{{"ca-certificate", credentials.head.ca_certificate},
                                      {"ca-key", credentials.ca_key},
                                      {"head-certificate", credentials.head.certificate},
                                      {"head-key", credentials.head.private_key},
                                      {"worker-certificate", credentials.worker.certificate},
                                      {"worker-key", credentials.worker.private_key}};
  for (const std::string& name : credentials.head.revoked) entries.emplace_back(kRevoked, name);
  return control::format_entries(kCredentialsTitle, entries);
}

Result<ClusterCredentials> make_cluster_credentials(std::int64_t lifetime_s) {
  ERR_clear_error();
  const KeyPtr ca_key(EVP_EC_gen("P-256"));
  const CertificatePtr ca =
      ca_key ? control::sign(control::ca_role(random_name()), ca_key.get(), nullptr, nullptr)
             : nullptr;
  ClusterCredentials made;
  made.head = make_side(control::head_role(lifetime_s), ca.get(), ca_key.get());
  made.worker = make_side(control::worker_role(kClusterLifetimeS), ca.get(), ca_key.get());
  if (made.head.certificate.empty() || made.worker.certificate.empty()) return cannot_be_made();
  made.ca_key = control::write_key(ca_key.get());
  return made;
}

Result<ClusterCredentials> renew_cluster_credentials(const ClusterCredentials& old,
                                                     RenewedSides which, std::int64_t lifetime_s) {
  if (old.ca_key.empty())
    return refused("the key of the CA that could sign others is not in credentials.pem");
  const CertificatePtr ca = control::read_certificate(old.head.ca_certificate);
  const KeyPtr ca_key = control::read_key(old.ca_key);
  const auto name = [&](const Credentials& side) {
    const auto called = certificate_name(side.certificate);
    return called.ok() && !which.renames ? *called : std::string();
  };
  ClusterCredentials made = old;
  if (which.head) {
    made.head =
        make_side(control::head_role(lifetime_s), ca.get(), ca_key.get(), name(old.head));
    made.head.revoked = old.head.revoked;
  }
  if (which.worker)
    made.worker = make_side(control::worker_role(kClusterLifetimeS), ca.get(), ca_key.get(),
                            name(old.worker));
  if (made.head.certificate.empty() || made.worker.certificate.empty()) return cannot_be_made();
  return made;
}

Result<ClusterCredentials> load_or_create(const std::filesystem::path& state_dir,
                                          std::int64_t lifetime_s) {
  if (const Status made = control::make_private_folder(state_dir); !made.ok()) return made.error();
  const std::filesystem::path path = state_dir / kCredentialsFile;
  auto text = control::read_small_file(path, kCredentialsBytesMax);
  if (!text.ok() && text.error().code == ErrorCode::kNotFound) {
    const auto fresh = make_cluster_credentials(lifetime_s);
    if (!fresh.ok()) return fresh.error();
    const Status written = control::write_private_file(path, format_cluster_credentials(*fresh),
                                                       control::IfExists::kKeep);
    if (!written.ok()) return written.error();
    // Another head may have been faster; its certificates count then.
    text = control::read_small_file(path, kCredentialsBytesMax);
  }
  if (!text.ok()) return text.error();
  auto credentials = parse_cluster_credentials(*text);
  if (credentials.ok()) return credentials;
  if (credentials.error().code == ErrorCode::kRefused)
    return refused("The file " + path.string() + " " + credentials.error().message +
                   "; use that version, or another state folder with --state-dir.");
  if (credentials.error().message.starts_with("revokes "))
    return corrupt("The file " + path.string() + " " + credentials.error().message +
                   "; take that line out.");
  return corrupt("The cluster's certificates in " + path.string() + " cannot be used: the file " +
                 credentials.error().message +
                 "; remove it to make new ones, and copy the join file to the workers again.");
}

}  // namespace troupe
