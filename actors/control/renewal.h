#pragma once

#include "actors/control/certificate_life.h"
#include "actors/control/credentials.h"
#include "actors/control/tls_session.h"
#include "runtime/clock.h"

namespace troupe {

/// A member's side of getting a new certificate for the one that it has, with a new key. Asks the
/// head over a connection of its own, so that no session notices; blocks up to the deadline.
/// kRefused: the certificate has ended, or the head signs none; kUnavailable, kNotFound,
/// kDeadlineExceeded: not now, or not there.
Result<Credentials> renew_credentials(const Credentials& current, const HostPort& head,
                                      Duration deadline);

/// Whether a running process may use `next` in place of `current`: of the same CA, whole, for that
/// side, and not ended already unless the other one has, too. The error is the end of a sentence.
Status may_replace(const Credentials& current, const Credentials& next, control::TlsSide side,
                   std::int64_t now_s);

}  // namespace troupe
