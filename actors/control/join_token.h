#pragma once

#include <string>
#include <string_view>

#include "runtime/result.h"

namespace troupe {

/// What a worker joins with in place of the join file, in the form that k3s has:
///
///     K10<SHA-256 of the CA's certificate>::<name>:<secret>
///
/// By the hash the worker knows the head, by the secret the head knows the worker.
struct JoinToken {
  std::string ca_hash;  ///< 64 small hexadecimal digits
  std::string name;
  std::string secret;
};

std::string format_join_token(const JoinToken& token);
/// kInvalidArgument says what is wrong with it; the text itself, a secret, is not in the message.
Result<JoinToken> parse_join_token(std::string_view text);

bool is_token_name(std::string_view text);
bool is_token_secret(std::string_view text);

/// Why the head of an old cluster takes no tokens.
inline constexpr std::string_view kNoTokensSentence =
    "This cluster's certificates were made by an earlier version of Troupe, which kept no key to "
    "sign others; copy the join file, or remove credentials.pem from the head's state folder.";

/// Draws a name and a secret of 128 bits. kUnavailable: there is no randomness.
Result<JoinToken> draw_join_token(std::string ca_hash);

/// Of the certificate's DER form; empty if the PEM text is no certificate.
std::string certificate_hash(const std::string& pem);
/// 64 small hexadecimal digits.
std::string sha256_hex(std::string_view bytes);

}  // namespace troupe
