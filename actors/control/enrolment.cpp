#include "actors/control/enrolment.h"

#include "actors/control/certificate_request.h"
#include "actors/control/desk_call.h"
#include "actors/control/enrolment_text.h"

namespace troupe {

Enrolment::Enrolment(JoinToken token, CertificateRequest request)
    : token_(std::move(token)), request_(std::move(request)) {}

Result<Enrolment> Enrolment::make(JoinToken token) {
  auto request = make_certificate_request();
  if (!request.ok()) return request.error();
  return Enrolment(std::move(token), std::move(*request));
}

Result<Credentials> Enrolment::ask(const HostPort& head, Duration deadline) {
  auto context = control::TlsContext::make_pinned(token_.ca_hash);
  if (!context.ok()) return context.error();
  const control::EnrolmentRequest request{token_.name, token_.secret, request_.text};
  const auto answer = control::call_desk(head, std::move(*context), control::TlsPurpose::kEnrolment,
                                         control::format_enrolment(request), deadline);
  if (!answer.ok()) return answer.error();
  auto credentials = control::read_answer(*answer, request_, to_string(head));
  if (credentials.ok() && certificate_hash(credentials->ca_certificate) != token_.ca_hash)
    return control::no_head_at(to_string(head), "it gave another cluster's certificates");
  return credentials;
}

}  // namespace troupe
