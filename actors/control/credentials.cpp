#include "actors/control/credentials.h"

#include <openssl/err.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include <array>

#include "actors/control/credential_text.h"
#include "actors/control/pem.h"
#include "actors/control/private_file.h"

namespace troupe {
namespace {

using control::CertificatePtr;
using control::KeyPtr;

constexpr std::string_view kCredentialsTitle = "troupe-credentials 1";
constexpr std::size_t kCredentialsBytesMax = 64u << 10;
constexpr long kSecondsOfDay = 24 * 60 * 60;
constexpr long kValidDays = 30 * 365;

/// What a certificate may do. A worker's is a client's only: it cannot pose as the head.
struct Role {
  std::string name;
  const char* constraints;
  const char* usage;
  const char* extended_usage;  ///< null: any
};

bool add_extension(X509* certificate, X509* issuer, int nid, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, nid, value);
  if (!extension) return false;
  const bool added = X509_add_ext(certificate, extension, -1) == 1;
  X509_EXTENSION_free(extension);
  return added;
}

/// A certificate for `key`, signed by the issuer; without one, by itself. Null if OpenSSL fails.
CertificatePtr sign(const Role& role, EVP_PKEY* key, X509* issuer, EVP_PKEY* issuer_key) {
  CertificatePtr certificate(X509_new());
  if (!certificate) return nullptr;
  X509* x = certificate.get();
  std::uint64_t serial = 0;
  if (RAND_bytes(reinterpret_cast<unsigned char*>(&serial), sizeof serial) != 1) return nullptr;
  bool ok = X509_set_version(x, X509_VERSION_3) == 1;
  ok = ok && ASN1_INTEGER_set_uint64(X509_get_serialNumber(x), serial >> 1) == 1;
  // A day earlier: clocks of machines differ.
  ok = ok && X509_gmtime_adj(X509_getm_notBefore(x), -kSecondsOfDay);
  ok = ok && X509_time_adj_ex(X509_getm_notAfter(x), kValidDays, 0, nullptr);
  X509_NAME* name = X509_get_subject_name(x);
  ok = ok && X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                                        reinterpret_cast<const unsigned char*>(role.name.c_str()),
                                        -1, -1, 0) == 1;
  ok = ok && X509_set_issuer_name(x, issuer ? X509_get_subject_name(issuer) : name) == 1;
  ok = ok && X509_set_pubkey(x, key) == 1;
  X509* signer = issuer ? issuer : x;
  ok = ok && add_extension(x, signer, NID_basic_constraints, role.constraints);
  ok = ok && add_extension(x, signer, NID_key_usage, role.usage);
  ok = ok &&
       (!role.extended_usage || add_extension(x, signer, NID_ext_key_usage, role.extended_usage));
  ok = ok && add_extension(x, signer, NID_subject_key_identifier, "hash");
  ok = ok && add_extension(x, signer, NID_authority_key_identifier, "keyid:always");
  ok = ok && X509_sign(x, issuer_key ? issuer_key : key, EVP_sha256()) > 0;
  return ok ? std::move(certificate) : nullptr;
}

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

Result<ClusterCredentials> parse(std::string_view text) {
  auto entries = control::parse_entries(kCredentialsTitle, text);
  if (!entries.ok()) return entries.error();
  const auto value = [&](std::string_view key) { return control::only_value(*entries, key); };
  const std::string ca = value("ca-certificate");
  const ClusterCredentials credentials{{ca, value("head-certificate"), value("head-key")},
                                       {ca, value("worker-certificate"), value("worker-key")}};
  for (const Credentials* side : {&credentials.head, &credentials.worker})
    if (const Status status = control::check_credentials(*side); !status.ok())
      return corrupt("is damaged: " + status.error().message);
  return credentials;
}

std::string format(const ClusterCredentials& credentials) {
  return control::format_entries(kCredentialsTitle,
                                 {{"ca-certificate", credentials.head.ca_certificate},
                                  {"head-certificate", credentials.head.certificate},
                                  {"head-key", credentials.head.private_key},
                                  {"worker-certificate", credentials.worker.certificate},
                                  {"worker-key", credentials.worker.private_key}});
}

}  // namespace

Result<ClusterCredentials> make_cluster_credentials() {
  ERR_clear_error();
  const KeyPtr ca_key(EVP_EC_gen("P-256")), head_key(EVP_EC_gen("P-256")),
      worker_key(EVP_EC_gen("P-256"));
  CertificatePtr ca, head, worker;
  const char* sign_only = "critical,digitalSignature";
  if (ca_key && head_key && worker_key) {
    ca = sign({random_name(), "critical,CA:TRUE,pathlen:0", "critical,keyCertSign", nullptr},
              ca_key.get(), nullptr, nullptr);
    if (ca)
      head = sign({"Troupe head", "critical,CA:FALSE", sign_only, "serverAuth,clientAuth"},
                  head_key.get(), ca.get(), ca_key.get());
    if (head)
      worker = sign({"Troupe worker", "critical,CA:FALSE", sign_only, "clientAuth"},
                    worker_key.get(), ca.get(), ca_key.get());
  }
  if (!worker)
    return internal_error(
        "The cluster's certificates cannot be made: " + control::take_openssl_error() + ".");
  // The CA's key is forgotten here: nobody signs anything again.
  const std::string ca_text = control::write_certificate(ca.get());
  return ClusterCredentials{
      {ca_text, control::write_certificate(head.get()), control::write_key(head_key.get())},
      {ca_text, control::write_certificate(worker.get()), control::write_key(worker_key.get())}};
}

Result<ClusterCredentials> load_or_create(const std::filesystem::path& state_dir) {
  if (const Status made = control::make_private_folder(state_dir); !made.ok()) return made.error();
  const std::filesystem::path path = state_dir / "credentials.pem";
  auto text = control::read_small_file(path, kCredentialsBytesMax);
  if (!text.ok() && text.error().code == ErrorCode::kNotFound) {
    const auto fresh = make_cluster_credentials();
    if (!fresh.ok()) return fresh.error();
    const Status written =
        control::write_private_file(path, format(*fresh), control::IfExists::kKeep);
    if (!written.ok()) return written.error();
    // Another head may have been faster; its certificates count then.
    text = control::read_small_file(path, kCredentialsBytesMax);
  }
  if (!text.ok()) return text.error();
  auto credentials = parse(*text);
  if (credentials.ok()) return credentials;
  if (credentials.error().code == ErrorCode::kRefused)
    return refused("The file " + path.string() + " " + credentials.error().message +
                   "; use that version, or another state folder with --state-dir.");
  return corrupt("The cluster's certificates in " + path.string() + " cannot be used: the file " +
                 credentials.error().message +
                 "; remove it to make new ones, and copy the join file to the workers again.");
}

}  // namespace troupe
