#include "actors/gateway/api_keys.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <strings.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>
#include <map>

namespace troupe {
namespace {

constexpr std::string_view kWeight = "weight=", kMaxRunning = "max-running=";

/// Takes all of `text`, or nothing.
template <class T>
bool read_number(std::string_view text, T low, T high, T& out) {
  const char* const end = text.data() + text.size();
  const auto [at, failure] = std::from_chars(text.data(), end, out);
  return failure == std::errc() && at == end && out >= low && out <= high;
}

bool is_control(char c) { return static_cast<unsigned char>(c) < ' ' || c == 127; }

/// One of what follows a key.
Status read_option(std::string_view option, KeyShare& share) {
  constexpr std::uint32_t kMost = std::numeric_limits<std::uint32_t>::max();
  if (option.starts_with(kWeight)) {
    if (read_number(option.substr(kWeight.size()), kWeightMin, kWeightMax, share.weight)) return {};
    return invalid_argument("--api-key: weight must be a number from 0.01 to 100.");
  }
  if (option.starts_with(kMaxRunning)) {
    const auto number = option.substr(kMaxRunning.size());
    if (read_number(number, std::uint32_t{1}, kMost, share.running_max)) return {};
    return invalid_argument("--api-key: max-running must be a whole number of at least 1.");
  }
  return invalid_argument(
      "--api-key: what follows the last ':' of a key must be weight=N, max-running=N or both with "
      "a comma between; a key that has a '=' there itself cannot be used.");
}

}  // namespace

Result<ApiKeys::Key> ApiKeys::parse(std::string_view spec) {
  const std::string_view bare = key_of(spec);
  if (bare.empty()) return invalid_argument("--api-key must not be empty.");
  if (bare.front() == ' ' || bare.back() == ' ' || std::ranges::any_of(bare, is_control))
    return invalid_argument(
        "--api-key must not begin or end with a space, or have line breaks: no client could send "
        "it. (The end of a line may have come from a file.)");
  Key key;
  key.hash = hash(bare);
  key.share.owner = owner_of(key.hash);
  spec.remove_prefix(bare.size());
  while (!spec.empty()) {
    spec.remove_prefix(1);  // the ':' or a ','
    const std::string_view option = spec.substr(0, spec.find(','));
    if (const Status read = read_option(option, key.share); !read.ok()) return read.error();
    spec.remove_prefix(option.size());
  }
  return key;
}

std::string_view ApiKeys::key_of(std::string_view spec) {
  const auto colon = spec.rfind(':');
  const bool options = colon != spec.npos && spec.find('=', colon) != spec.npos;
  return options ? spec.substr(0, colon) : spec;
}

Status ApiKeys::check(const std::vector<std::string>& specs) {
  std::map<std::uint64_t, KeyShare> shares;
  for (const std::string& spec : specs) {
    const auto key = parse(spec);
    if (!key.ok()) return key.error();
    const auto known = shares.emplace(key->share.owner, key->share).first;
    if (known->second != key->share)
      return invalid_argument("--api-key: a key is given twice, with other shares; leave one out.");
  }
  return {};
}

ApiKeys::ApiKeys(const std::vector<std::string>& specs) {
  for (const std::string& spec : specs) {
    Key key = parse(spec).value();
    const auto same = [&](const Key& known) { return known.hash == key.hash; };
    if (std::ranges::none_of(keys_, same)) keys_.push_back(key);
  }
}

ApiKeys::Hash ApiKeys::hash(std::string_view key) {
  Hash digest;
  SHA256(reinterpret_cast<const unsigned char*>(key.data()), key.size(), digest.data());
  return digest;
}

std::uint64_t ApiKeys::owner_of(const Hash& hash) {
  std::uint64_t owner = 0;
  std::memcpy(&owner, hash.data(), sizeof owner);
  return owner;
}

std::optional<ApiKeys::Hash> ApiKeys::presented(std::string_view authorization) {
  constexpr std::string_view kScheme = "Bearer ";
  if (authorization.size() < kScheme.size() ||
      strncasecmp(authorization.data(), kScheme.data(), kScheme.size()) != 0) {
    return std::nullopt;
  }
  authorization.remove_prefix(kScheme.size());
  while (!authorization.empty() && authorization.front() == ' ') authorization.remove_prefix(1);
  return hash(authorization);
}

bool ApiKeys::admit(std::string_view authorization) const {
  if (keys_.empty()) return true;
  const std::optional<Hash> given = presented(authorization);
  if (!given) return false;
  int equal = 0;  // Every key is compared: which one fits must not show in the time.
  for (const Key& key : keys_) {
    equal |= static_cast<int>(CRYPTO_memcmp(key.hash.data(), given->data(), given->size()) == 0);
  }
  return equal != 0;
}

std::uint64_t ApiKeys::owner(std::string_view authorization) const {
  const std::optional<Hash> key = keys_.empty() ? std::nullopt : presented(authorization);
  return key ? owner_of(*key) : 0;
}

std::vector<KeyShare> ApiKeys::shares() const {
  std::vector<KeyShare> shares;
  for (const Key& key : keys_) shares.push_back(key.share);
  return shares;
}

}  // namespace troupe
