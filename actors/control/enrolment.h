#pragma once

#include "actors/control/certificate_request.h"
#include "actors/control/credentials.h"
#include "actors/control/join_token.h"
#include "runtime/clock.h"

namespace troupe {

/// A worker's side of getting a certificate for a token.
class Enrolment {
 public:
  /// kInternal: no key can be made.
  static Result<Enrolment> make(JoinToken token);

  /// Asks the head, whose certificate must be of the token's cluster before it is told the secret.
  /// May be called again after an error that says not now: kUnavailable, kNotFound (no such host),
  /// kDeadlineExceeded. kRefused: the token does not work, or not there.
  Result<Credentials> ask(const HostPort& head, Duration deadline);

 private:
  Enrolment(JoinToken token, CertificateRequest request);

  JoinToken token_;
  CertificateRequest request_;
};

}  // namespace troupe
