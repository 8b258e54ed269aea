#pragma once

#include <cstdint>
#include <string>

#include "runtime/clock.h"
#include "runtime/result.h"

namespace troupe {

/// How long certificates are good that the head signs for itself and for tokens, unless it is told
/// otherwise: a year. Each is renewed long before. The one in the join file is made to be copied,
/// so nothing ends it for as long as a cluster may last.
inline constexpr std::int64_t kCertificateLifetimeS = 365 * 24 * 3600LL;
inline constexpr std::int64_t kClusterLifetimeS = 30 * kCertificateLifetimeS;

/// From when until when a certificate is good; seconds since 1970.
struct CertificateLife {
  std::int64_t begins_s = 0;
  std::int64_t ends_s = 0;

  std::int64_t span_s() const { return ends_s - begins_s; }
  bool operator==(const CertificateLife&) const = default;
};

/// Of a certificate as PEM text. kCorrupt: it is none, or ends before it begins.
Result<CertificateLife> life_of(const std::string& pem);

/// Whether the head takes it no more: a day after its end, or a tenth of its life if that is less,
/// since the clocks of a head and its standby differ.
bool has_ended(const CertificateLife& life, std::int64_t now_s);

/// When to renew it: after two thirds of its life, and up to a sixth of it later by `spread`
/// (0 to 1), so that many that were made at once do not come at once.
std::int64_t renewal_due_s(const CertificateLife& life, double spread);

/// From when on people are warned of one that cannot be renewed: 30 days before its end, or a
/// third of its life if that is less.
std::int64_t warning_due_s(const CertificateLife& life);

/// How long to wait after that many failures: from a second, doubled each time, to an hour, and
/// never more than an eighth of what is left. `spread` (0 to 1) takes up to half of it away.
Duration retry_pause(int failures, std::int64_t left_s, double spread);

/// "2027-11-26 20:59:29 UTC"
std::string utc_text(std::int64_t unix_s);

std::int64_t unix_seconds();

}  // namespace troupe
