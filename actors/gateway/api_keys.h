#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/key_share.h"
#include "runtime/result.h"

namespace troupe {

/// The keys that open the API, as `--api-key` names them: KEY, or
/// KEY:weight=N,max-running=N with one of the two or both. Only their hashes are kept, and
/// comparing takes the same time whatever is presented.
///
/// A key may hold colons itself: what follows the last one is a part of it, unless there is a '='
/// in that.
class ApiKeys {
 public:
  /// Whether the constructor takes them: none is empty, or given twice with other shares, and what
  /// stands behind a key is known and in range. No key is in the message.
  static Status check(const std::vector<std::string>& specs);
  /// `specs` have been checked.
  explicit ApiKeys(const std::vector<std::string>& specs);

  /// Without what stands behind it.
  static std::string_view key_of(std::string_view spec);

  /// `authorization`: the header's value, "Bearer KEY". Without keys everybody may.
  bool admit(std::string_view authorization) const;
  /// Who asks with this header, which was admitted: a part of the key's hash. Without keys all are
  /// one, 0.
  std::uint64_t owner(std::string_view authorization) const;
  /// What each of them may have.
  std::vector<KeyShare> shares() const;

 private:
  using Hash = std::array<unsigned char, 32>;  // SHA-256
  struct Key {
    Hash hash{};
    KeyShare share;
  };
  /// Of the key in the header; none: there is no key in it.
  static std::optional<Hash> presented(std::string_view authorization);
  static Hash hash(std::string_view key);
  static std::uint64_t owner_of(const Hash& hash);
  static Result<Key> parse(std::string_view spec);
  std::vector<Key> keys_;
};

}  // namespace troupe
