#include "actors/control/credentials.h"
#include "actors/control/enrolment_text.h"
#include "actors/control/join_token.h"
#include "actors/control/pem.h"
#include "actors/control/token_book.h"
#include "tests/fuzz/seeds.h"

namespace troupe::fuzz {

std::vector<std::string> made_seeds() {
  const auto made = make_cluster_credentials();
  if (!made.ok()) return {};
  const std::string& ca = made->head.ca_certificate;
  const auto token = draw_join_token(certificate_hash(ca));
  const control::KeyPtr key = control::read_key(made->worker.private_key);
  if (!token.ok() || !key) return {};
  const control::EnrolmentRequest request{token->name, token->secret,
                                          control::write_request(key.get())};
  const KeptToken kept{token->name, sha256_hex(token->secret), true, 1, 2, 3, sha256_hex("")};
  return {control::format_enrolment(request),
          control::format_renewal(request.signing_request),
          control::format_enrolment(control::EnrolmentReply{ca, ca, {}}),
          control::format_enrolment(control::EnrolmentReply{{}, {}, "No."}),
          format_join_token(*token),
          format_tokens({kept, kept})};
}

}  // namespace troupe::fuzz
