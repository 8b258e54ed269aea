#include "actors/control/enrolment_text.h"

#include "actors/control/credential_text.h"
#include "actors/control/join_token.h"

namespace troupe::control {
namespace {

constexpr std::string_view kRequestTitle = "troupe-enrolment 1";
constexpr std::string_view kRenewalTitle = "troupe-renewal 1";
constexpr std::string_view kReplyTitle = "troupe-enrolled 1";
constexpr std::size_t kRefusalBytesMax = 512;

bool is_block(std::string_view text, std::string_view kind) {
  return text.starts_with("-----BEGIN " + std::string(kind) + "-----");
}

Result<std::vector<Entry>> entries_of(std::string_view title, std::string_view text) {
  if (text.size() > kEnrolmentBytesMax) return corrupt("is too long");
  return parse_entries(title, text);
}

}  // namespace

std::string format_enrolment(const EnrolmentRequest& request) {
  return format_entries(kRequestTitle, {{"token", request.token},
                                        {"secret", request.secret},
                                        {"signing-request", request.signing_request}});
}

std::string format_enrolment(const EnrolmentReply& reply) {
  if (!reply.refusal.empty()) return format_entries(kReplyTitle, {{"refusal", reply.refusal}});
  return format_entries(kReplyTitle, {{"ca-certificate", reply.ca_certificate},
                                      {"worker-certificate", reply.certificate}});
}

Result<EnrolmentRequest> parse_enrolment_request(std::string_view text) {
  const auto entries = entries_of(kRequestTitle, text);
  if (!entries.ok()) return entries.error();
  EnrolmentRequest request{only_value(*entries, "token"), only_value(*entries, "secret"),
                           only_value(*entries, "signing-request")};
  if (!is_token_name(request.token)) return corrupt("names no token");
  if (!is_token_secret(request.secret)) return corrupt("has no secret");
  if (!is_block(request.signing_request, "CERTIFICATE REQUEST"))
    return corrupt("has no request for a certificate");
  return request;
}

std::string format_renewal(const std::string& signing_request) {
  return format_entries(kRenewalTitle, {{"signing-request", signing_request}});
}

Result<std::string> parse_renewal(std::string_view text) {
  const auto entries = entries_of(kRenewalTitle, text);
  if (!entries.ok()) return entries.error();
  std::string request = only_value(*entries, "signing-request");
  if (!is_block(request, "CERTIFICATE REQUEST")) return corrupt("has no request for a certificate");
  return request;
}

Result<EnrolmentReply> parse_enrolment_reply(std::string_view text) {
  const auto entries = entries_of(kReplyTitle, text);
  if (!entries.ok()) return entries.error();
  EnrolmentReply reply{only_value(*entries, "ca-certificate"),
                       only_value(*entries, "worker-certificate"), only_value(*entries, "refusal")};
  if (reply.refusal.size() > kRefusalBytesMax) return corrupt("has a refusal that is too long");
  const bool given =
      is_block(reply.ca_certificate, "CERTIFICATE") && is_block(reply.certificate, "CERTIFICATE");
  if (given == !reply.refusal.empty()) return corrupt("has neither certificates nor a refusal");
  return reply;
}

}  // namespace troupe::control
