#include "actors/control/join_token.h"

#include <openssl/rand.h>
#include <openssl/sha.h>

#include <algorithm>
#include <array>
#include <span>

#include "actors/control/pem.h"

namespace troupe {
namespace {

constexpr std::string_view kPrefix = "K10";
constexpr std::size_t kHashDigits = 2 * SHA256_DIGEST_LENGTH;
constexpr std::size_t kSecretBytes = 16;
constexpr std::size_t kNameBytes = 4;
constexpr std::size_t kNameLengthMax = 32;

std::string hex_of(std::span<const unsigned char> bytes) {
  std::string text;
  for (const unsigned char byte : bytes) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

bool is_hex(std::string_view text) {
  return std::ranges::all_of(
      text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

}  // namespace

bool is_token_name(std::string_view text) {
  return !text.empty() && text.size() <= kNameLengthMax && std::ranges::all_of(text, [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || c == '-';
  });
}

bool is_token_secret(std::string_view text) {
  return text.size() == 2 * kSecretBytes && is_hex(text);
}

std::string format_join_token(const JoinToken& token) {
  return std::string(kPrefix) + token.ca_hash + "::" + token.name + ":" + token.secret;
}

Result<JoinToken> parse_join_token(std::string_view text) {
  const auto wrong = [](std::string_view what) {
    return invalid_argument("The token " + std::string(what) +
                            "; copy it whole, as `troupe token create` printed it.");
  };
  if (!text.starts_with(kPrefix))
    return wrong("does not begin with " + std::string(kPrefix) + " as tokens do");
  text.remove_prefix(kPrefix.size());
  const std::size_t colons = text.find("::");
  const std::string_view hash = text.substr(0, std::min(kHashDigits, colons));
  if (hash.size() < kHashDigits && colons == text.npos) return wrong("is cut off");
  if (colons != kHashDigits || !is_hex(hash)) return wrong("has no hash of a cluster in it");
  text.remove_prefix(kHashDigits + 2);
  const std::size_t colon = text.find(':');
  if (colon == text.npos) return wrong("is cut off");
  JoinToken token{std::string(hash), std::string(text.substr(0, colon)),
                  std::string(text.substr(colon + 1))};
  if (!is_token_name(token.name)) return wrong("has no name in it");
  if (token.secret.size() < 2 * kSecretBytes && is_hex(token.secret)) return wrong("is cut off");
  if (!is_token_secret(token.secret)) return wrong("has more at its end than a secret");
  return token;
}

Result<JoinToken> draw_join_token(std::string ca_hash) {
  std::array<unsigned char, kNameBytes + kSecretBytes> bytes{};
  if (RAND_bytes(bytes.data(), bytes.size()) != 1)
    return unavailable("No token can be drawn: " + control::take_openssl_error() + ".");
  const std::span all(bytes);
  return JoinToken{std::move(ca_hash), hex_of(all.first(kNameBytes)),
                   hex_of(all.subspan(kNameBytes))};
}

std::string certificate_hash(const std::string& pem) {
  const control::CertificatePtr certificate = control::read_certificate(pem);
  return certificate ? control::certificate_hash(certificate.get()) : std::string();
}

std::string sha256_hex(std::string_view bytes) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest.data());
  return hex_of(digest);
}

}  // namespace troupe

namespace troupe::control {

std::string certificate_hash(X509* certificate) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
  unsigned int size = 0;
  if (X509_digest(certificate, EVP_sha256(), digest.data(), &size) != 1) return {};
  return hex_of(digest);
}

}  // namespace troupe::control
