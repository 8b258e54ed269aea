#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "runtime/result.h"

/// The one exchange of a worker that has a token and no certificate, or a certificate and wants the
/// next, as text in one frame each way (the form of credential_text.h).
namespace troupe::control {

struct EnrolmentRequest {
  std::string token;            ///< its name
  std::string secret;           ///< and what proves it
  std::string signing_request;  ///< PEM, for the worker's own key
};

/// Either the certificates or why there are none.
struct EnrolmentReply {
  std::string ca_certificate, certificate;
  std::string refusal;  ///< one sentence
};

inline constexpr std::size_t kEnrolmentBytesMax = 16u << 10;

std::string format_enrolment(const EnrolmentRequest& request);
std::string format_enrolment(const EnrolmentReply& reply);
/// A member's: its certificate proves it, and nothing that it says of itself counts.
std::string format_renewal(const std::string& signing_request);

/// kCorrupt; kRefused: another version of Troupe wrote it. The error is the end of a sentence.
/// Whether PEM blocks hold what they should is not looked at.
Result<EnrolmentRequest> parse_enrolment_request(std::string_view text);
/// The request for a certificate.
Result<std::string> parse_renewal(std::string_view text);
Result<EnrolmentReply> parse_enrolment_reply(std::string_view text);

}  // namespace troupe::control
