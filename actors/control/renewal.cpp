#include "actors/control/renewal.h"

#include <openssl/err.h>
#include <openssl/x509v3.h>

#include "actors/control/certificate_request.h"
#include "actors/control/desk_call.h"
#include "actors/control/enrolment_text.h"
#include "actors/control/pem.h"

namespace troupe {
namespace {

using control::TlsSide;

/// A CA's certificate may be another one as long as its name and its key are the same.
bool same_authority(const std::string& a, const std::string& b) {
  const auto one = control::read_certificate(a), other = control::read_certificate(b);
  const bool same =
      one && other &&
      X509_NAME_cmp(X509_get_subject_name(one.get()), X509_get_subject_name(other.get())) == 0 &&
      EVP_PKEY_eq(X509_get0_pubkey(one.get()), X509_get0_pubkey(other.get())) == 1;
  ERR_clear_error();
  return same;
}

bool serves_as(const std::string& certificate, TlsSide side) {
  const auto read = control::read_certificate(certificate);
  const int purpose = side == TlsSide::kServer ? X509_PURPOSE_SSL_SERVER : X509_PURPOSE_SSL_CLIENT;
  const bool serves = read && X509_check_purpose(read.get(), purpose, 0) == 1;
  ERR_clear_error();
  return serves;
}

/// Clocks may be this far apart, in seconds.
constexpr std::int64_t kClocksApartS = 24 * 3600;

}  // namespace

Result<Credentials> renew_credentials(const Credentials& current, const HostPort& head,
                                      Duration deadline) {
  auto context = control::TlsContext::make(current, TlsSide::kClient, true);
  if (!context.ok()) return context.error();
  const auto request = make_certificate_request();
  if (!request.ok()) return request.error();
  const auto answer = control::call_desk(head, std::move(*context), control::TlsPurpose::kRenewal,
                                         control::format_renewal(request->text), deadline);
  if (!answer.ok()) return answer.error();
  auto credentials = control::read_answer(*answer, *request, to_string(head));
  if (credentials.ok() && !same_authority(current.ca_certificate, credentials->ca_certificate))
    return control::no_head_at(to_string(head), "it gave another cluster's certificates");
  if (!credentials.ok()) return credentials;
  const auto had = life_of(current.certificate), given = life_of(credentials->certificate);
  if (had.ok() && given.ok() && given->begins_s + kClocksApartS < had->begins_s)
    return unavailable("the clock of the head at " + to_string(head) + " is behind: what it gave " +
                       "ends at " + utc_text(given->ends_s));
  return credentials;
}

Status may_replace(const Credentials& current, const Credentials& next, TlsSide side,
                   std::int64_t now_s) {
  if (const Status whole = control::check_credentials(next); !whole.ok()) return whole;
  if (!same_authority(current.ca_certificate, next.ca_certificate))
    return refused("it is of another cluster, which takes a restart");
  if (!serves_as(next.certificate, side))
    return refused(side == TlsSide::kServer ? "it is not for a server" : "it is not for a client");
  const auto life = life_of(next.certificate), before = life_of(current.certificate);
  if (!life.ok()) return life.error();
  if (has_ended(*life, now_s) && before.ok() && !has_ended(*before, now_s))
    return refused("it ended at " + utc_text(life->ends_s));
  // What else TLS asks for, such as keys that are long enough.
  const auto context = control::TlsContext::make(next, side);
  return context.ok() ? Status() : context.error();
}

}  // namespace troupe
