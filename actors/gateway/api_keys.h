#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// The keys that open the API. Only their hashes are kept, and comparing takes the same time
/// whatever is presented.
class ApiKeys {
 public:
  explicit ApiKeys(const std::vector<std::string>& keys);

  /// `authorization`: the header's value, "Bearer KEY". Without keys everybody may.
  bool admit(std::string_view authorization) const;

 private:
  using Hash = std::array<unsigned char, 32>;  // SHA-256
  static Hash hash(std::string_view key);
  std::vector<Hash> hashes_;
};

}  // namespace troupe
