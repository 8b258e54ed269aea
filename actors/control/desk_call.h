#pragma once

#include <memory>
#include <string>

#include "actors/control/credentials.h"
#include "actors/control/tls_session.h"
#include "runtime/clock.h"

namespace troupe::control {

/// One question to the head's desk and its answer (enrolment_text.h), over a connection of its own.
/// Blocks up to the deadline. The head has proved itself before it is told anything. Errors:
/// kUnavailable, kNotFound (no such host), kDeadlineExceeded: not now; kRefused: the certificates
/// do not belong together, or it is no head.
Result<std::string> call_desk(const HostPort& head, std::shared_ptr<TlsContext> context,
                              TlsPurpose purpose, const std::string& request, Duration deadline);

/// kRefused: what is there does not speak as a head does.
Error no_head_at(const std::string& peer, const std::string& why);

}  // namespace troupe::control
