#include "actors/control/signing.h"

#include <openssl/err.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <string_view>

#include "actors/control/credentials.h"
#include "actors/control/join_token.h"

namespace troupe::control {
namespace {

constexpr std::int64_t kSecondsOfDay = 24 * 60 * 60;
constexpr const char* kSignOnly = "critical,digitalSignature";

bool add_to_subject(X509_NAME* subject, const char* field, const std::string& value) {
  return X509_NAME_add_entry_by_txt(subject, field, MBSTRING_ASC,
                                    reinterpret_cast<const unsigned char*>(value.c_str()), -1, -1,
                                    0) == 1;
}

bool add_extension(X509* certificate, X509* issuer, int nid, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, nid, value);
  if (!extension) return false;
  const bool added = X509_add_ext(certificate, extension, -1) == 1;
  X509_EXTENSION_free(extension);
  return added;
}

}  // namespace

Role ca_role(std::string name) {
  return {std::move(name), "critical,CA:TRUE,pathlen:0", "critical,keyCertSign", nullptr};
}
Role head_role(std::int64_t lifetime_s) {
  return {"Troupe head", "critical,CA:FALSE", kSignOnly, "serverAuth,clientAuth", lifetime_s};
}
Role worker_role(std::int64_t lifetime_s) {
  return {"Troupe worker", "critical,CA:FALSE", kSignOnly, "clientAuth", lifetime_s};
}

std::string name_of(X509* certificate) {
  std::array<char, 64> text{};
  X509_NAME_get_text_by_NID(X509_get_subject_name(certificate), NID_serialNumber, text.data(),
                            static_cast<int>(text.size()));
  if (is_certificate_name(text.data())) return text.data();
  const ASN1_INTEGER* serial = X509_get0_serialNumber(certificate);
  std::uint64_t number = 0;
  const bool fits = ASN1_INTEGER_get_uint64(&number, serial) == 1;
  ERR_clear_error();
  if (!fits) {  // one that somebody else has drawn
    const std::string_view bytes(reinterpret_cast<const char*>(ASN1_STRING_get0_data(serial)),
                                 static_cast<std::size_t>(ASN1_STRING_length(serial)));
    return sha256_hex(bytes).substr(0, kCertificateNameLength);
  }
  std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(number));
  return text.data();
}

CertificatePtr sign(const Role& role, EVP_PKEY* key, X509* issuer, EVP_PKEY* issuer_key,
                    const std::string& name) {
  CertificatePtr certificate(X509_new());
  if (!certificate) return nullptr;
  X509* x = certificate.get();
  std::uint64_t serial = 0;
  if (RAND_bytes(reinterpret_cast<unsigned char*>(&serial), sizeof serial) != 1) return nullptr;
  bool ok = X509_set_version(x, X509_VERSION_3) == 1;
  ok = ok && ASN1_INTEGER_set_uint64(X509_get_serialNumber(x), serial >> 1) == 1;
  // A day earlier: clocks of machines differ.
  const auto early = static_cast<long>(std::min(kSecondsOfDay, role.lifetime_s / 10));
  const auto days = static_cast<int>(role.lifetime_s / kSecondsOfDay);
  const auto rest = static_cast<long>(role.lifetime_s % kSecondsOfDay);
  ok = ok && X509_gmtime_adj(X509_getm_notBefore(x), -early);
  ok = ok && X509_time_adj_ex(X509_getm_notAfter(x), days, rest, nullptr);
  X509_NAME* subject = X509_get_subject_name(x);
  ok = ok && add_to_subject(subject, "CN", role.name);
  ok = ok && (name.empty() || add_to_subject(subject, "serialNumber", name));
  ok = ok && X509_set_issuer_name(x, issuer ? X509_get_subject_name(issuer) : subject) == 1;
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

}  // namespace troupe::control
