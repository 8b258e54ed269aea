#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "actors/control/certificate_life.h"
#include "runtime/result.h"

namespace troupe {

/// What one side of a control session presents and trusts, as PEM text. The CA is the cluster's
/// own: a holder of its certificate belongs to the cluster, and names are not checked.
struct Credentials {
  std::string ca_certificate;
  std::string certificate;
  std::string private_key;
  /// Names of certificates (certificate_name) of the CA that this side takes no more. Of heads.
  std::vector<std::string> revoked = {};
  bool operator==(const Credentials&) const = default;
};

inline constexpr std::size_t kRevokedMax = 1000;

/// What a certificate is called, and every one that it is renewed by: 16 small hexadecimal digits.
/// kCorrupt: the PEM text is none.
Result<std::string> certificate_name(const std::string& pem);
inline constexpr std::size_t kCertificateNameLength = 16;
bool is_certificate_name(std::string_view text);

/// What the head keeps in its state folder, and hands out in the join file (the worker's part).
struct ClusterCredentials {
  Credentials head;
  Credentials worker;
  /// Signs certificates of workers that join with a token. Empty where an earlier version of Troupe
  /// made the certificates: it forgot the key.
  std::string ca_key;
  bool operator==(const ClusterCredentials&) const = default;
};

/// The cluster's certificates from `state_dir`/credentials.pem; at first start they are made (EC
/// P-256; the head's for `lifetime_s`, the others for 30 years) and written, mode 0600, in one
/// piece. The folder is made with mode
/// 0700. Two heads that start at once end up with the same ones. Errors: kCorrupt (names the file
/// and what to do), kUnavailable (the folder cannot be written).
Result<ClusterCredentials> load_or_create(const std::filesystem::path& state_dir,
                                          std::int64_t lifetime_s = kCertificateLifetimeS);

/// New certificates, nowhere written.
Result<ClusterCredentials> make_cluster_credentials(
    std::int64_t lifetime_s = kCertificateLifetimeS);

/// Signs those sides again, with new keys, by the CA's key; writes nothing. kRefused: there is no
/// such key.
struct RenewedSides {
  bool head = true, worker = true;
  bool renames = false;  ///< else the new ones are called as the old ones
};
Result<ClusterCredentials> renew_cluster_credentials(const ClusterCredentials& old,
                                                     RenewedSides which, std::int64_t lifetime_s);

/// The file's text, and back. kCorrupt, kRefused: the end of a sentence about the file.
std::string format_cluster_credentials(const ClusterCredentials& credentials);
Result<ClusterCredentials> parse_cluster_credentials(std::string_view text);

inline constexpr std::string_view kCredentialsFile = "credentials.pem";
inline constexpr std::size_t kCredentialsBytesMax = 64u << 10;

/// What another machine needs to join: STATE/join, written by the head.
struct JoinFile {
  std::vector<std::string> heads;  ///< "host:port", at least one, the most useful first
  Credentials worker;
};

inline constexpr std::size_t kJoinFileBytesMax = 64u << 10;
inline constexpr std::size_t kJoinFileHeadsMax = 64;

/// Writes it with mode 0600, in one piece.
Status write_join_file(const std::filesystem::path& path, const JoinFile& join);

/// Errors: kNotFound, kCorrupt; each names the file and says what to do.
Result<JoinFile> read_join_file(const std::filesystem::path& path);

std::string format_join_file(const JoinFile& join);
/// `name` is what messages call it. Validates everything, the certificates too.
Result<JoinFile> parse_join_file(std::string_view text, const std::string& name);

/// "host:port", "[::1]:port"; the default port counts where none is given.
struct HostPort {
  std::string host;
  std::uint16_t port = 0;
  bool operator==(const HostPort&) const = default;
};
inline constexpr std::uint16_t kDefaultHeadPort = 6379;
Result<HostPort> parse_host_port(std::string_view text,
                                 std::uint16_t default_port = kDefaultHeadPort);
std::string to_string(const HostPort& address);

}  // namespace troupe
