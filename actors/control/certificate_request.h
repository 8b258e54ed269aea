#pragma once

#include <string>
#include <string_view>

#include "actors/control/credentials.h"

namespace troupe {

/// A new key, and what asks the head to sign it. The key leaves this machine never.
struct CertificateRequest {
  std::string key;
  std::string text;  ///< PEM
};
/// kInternal: no key can be made.
Result<CertificateRequest> make_certificate_request();

namespace control {

/// What a desk's answer (enrolment_text.h) makes of a request: checked, except for whose CA it is.
/// kRefused: the head says no, or it is none. `head` is what messages call it.
Result<Credentials> read_answer(std::string_view answer, const CertificateRequest& request,
                                const std::string& head);

}  // namespace control
}  // namespace troupe
