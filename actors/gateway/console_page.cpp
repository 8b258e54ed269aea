#include "actors/gateway/console_page.h"

#include <openssl/evp.h>
#include <openssl/sha.h>

#include <array>
#include <string>

namespace troupe {
namespace {

/// 'sha256-...' of what stands between two tags, as a Content-Security-Policy names it.
std::string hash_source(std::string_view html, std::string_view open, std::string_view close) {
  const std::size_t begin = html.find(open) + open.size();
  const std::string_view text = html.substr(begin, html.find(close, begin) - begin);
  std::array<unsigned char, SHA256_DIGEST_LENGTH> hash{};
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), hash.data());
  std::array<unsigned char, 4 * ((SHA256_DIGEST_LENGTH + 2) / 3) + 1> base64{};
  const int length = EVP_EncodeBlock(base64.data(), hash.data(), static_cast<int>(hash.size()));
  return "'sha256-" +
         std::string(reinterpret_cast<const char*>(base64.data()), static_cast<size_t>(length)) +
         "'";
}

}  // namespace

HttpReply console_page() {
  const std::string_view html = console_html();
  const std::string policy =
      "default-src 'none'; script-src " + hash_source(html, "<script>", "</script>") +
      "; style-src " + hash_source(html, "<style>", "</style>") +
      "; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
      "frame-ancestors 'none'";
  return {.body = std::string(html),
          .content_type = "text/html; charset=utf-8",
          .headers = {{"Content-Security-Policy", policy},
                      {"X-Content-Type-Options", "nosniff"},
                      {"Referrer-Policy", "no-referrer"},
                      {"Cache-Control", "no-cache"}}};
}

}  // namespace troupe
