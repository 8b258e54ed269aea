#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "actors/control/join_token.h"
#include "runtime/result.h"

namespace troupe {

/// A token as the head keeps it: it knows the secret when it sees it, and cannot tell it.
struct KeptToken {
  std::string name;
  std::string secret_hash;
  bool once = false;
  std::int64_t created_s = 0;  ///< all of them seconds since 1970
  std::int64_t expires_s = 0;  ///< 0: never
  std::int64_t used_s = 0;     ///< 0: not yet; only of those that work once
  std::string used_by;         ///< the hash of the request that it was used for

  bool expired(std::int64_t now_s) const { return expires_s != 0 && expires_s <= now_s; }
};

inline constexpr std::size_t kTokensKeptMax = 100;

/// The tokens of a cluster, in the head's state folder: STATE/tokens, mode 0600. The head and
/// `troupe token` use it at the same time; each change is made under a lock, in one piece.
class TokenBook {
 public:
  explicit TokenBook(const std::filesystem::path& state_dir);

  /// Room is made by forgetting those that no longer work. Errors: kResourceExhausted, and those
  /// of files.
  Result<JoinToken> create(const std::string& ca_hash, bool once,
                           std::optional<std::int64_t> lifetime_s, std::int64_t now_s);
  /// The oldest first.
  Result<std::vector<KeptToken>> list() const;
  /// kNotFound.
  Status remove(const std::string& name);

  /// Whether there is such a token, used up or not; false too if the file cannot be read.
  bool knows(const std::string& name, const std::string& secret) const;
  /// Takes a token for a request; one that works once is used up, though the same request may ask
  /// again: its answer may have been lost. kRefused says why not, kNotFound that the name or the
  /// secret is wrong.
  Status redeem(const std::string& name, const std::string& secret, std::string_view request,
                std::int64_t now_s);

 private:
  using Tokens = std::vector<KeptToken>;
  Result<Tokens> read() const;
  /// Reads, lets `change` work on it, and writes, all under the lock.
  Status edit(const std::function<Status(Tokens&)>& change);

  const std::string path_;
};

/// The file's text. kCorrupt is the end of a sentence about it; kRefused: another version wrote it.
std::string format_tokens(const std::vector<KeptToken>& tokens);
Result<std::vector<KeptToken>> parse_tokens(std::string_view text);

}  // namespace troupe
