#include "actors/control/certificate_request.h"

#include <openssl/err.h>

#include "actors/control/desk_call.h"
#include "actors/control/enrolment_text.h"
#include "actors/control/pem.h"

namespace troupe {

Result<CertificateRequest> make_certificate_request() {
  ERR_clear_error();
  const control::KeyPtr key(EVP_EC_gen("P-256"));
  std::string text = key ? control::write_request(key.get()) : std::string();
  if (text.empty())
    return internal_error("No key can be made: " + control::take_openssl_error() + ".");
  return CertificateRequest{control::write_key(key.get()), std::move(text)};
}

Result<Credentials> control::read_answer(std::string_view answer, const CertificateRequest& request,
                                         const std::string& head) {
  const auto reply = parse_enrolment_reply(answer);
  if (!reply.ok()) return no_head_at(head, "its answer " + reply.error().message);
  if (!reply->refusal.empty()) return refused(reply->refusal);
  Credentials credentials{reply->ca_certificate, reply->certificate, request.key};
  if (const Status checked = check_credentials(credentials); !checked.ok())
    return no_head_at(head, checked.error().message);
  return credentials;
}

}  // namespace troupe
