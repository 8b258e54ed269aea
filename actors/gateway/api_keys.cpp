#include "actors/gateway/api_keys.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <strings.h>

namespace troupe {

ApiKeys::ApiKeys(const std::vector<std::string>& keys) {
  for (const std::string& key : keys) hashes_.push_back(hash(key));
}

ApiKeys::Hash ApiKeys::hash(std::string_view key) {
  Hash digest;
  SHA256(reinterpret_cast<const unsigned char*>(key.data()), key.size(), digest.data());
  return digest;
}

bool ApiKeys::admit(std::string_view authorization) const {
  if (hashes_.empty()) return true;
  constexpr std::string_view kScheme = "Bearer ";
  if (authorization.size() < kScheme.size() ||
      strncasecmp(authorization.data(), kScheme.data(), kScheme.size()) != 0) {
    return false;
  }
  authorization.remove_prefix(kScheme.size());
  while (!authorization.empty() && authorization.front() == ' ') authorization.remove_prefix(1);
  const Hash presented = hash(authorization);
  int equal = 0;  // Every key is compared: which one fits must not show in the time.
  for (const Hash& known : hashes_) {
    equal |= static_cast<int>(CRYPTO_memcmp(known.data(), presented.data(), known.size()) == 0);
  }
  return equal != 0;
}

}  // namespace troupe
