#include "actors/control/certificate_life.h"

#include <openssl/err.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>

#include "actors/control/pem.h"

namespace troupe {
namespace {

constexpr std::int64_t kDayS = 24 * 3600;
constexpr std::int64_t kHourS = 3600;
constexpr int kDoublingsMax = 12;  // of a second: more than an hour
constexpr Duration kPauseMin = std::chrono::milliseconds(200);

bool read_time(const ASN1_TIME* from, std::int64_t& to) {
  std::tm parts{};
  if (ASN1_TIME_to_tm(from, &parts) != 1) return false;
  to = ::timegm(&parts);
  return true;
}

}  // namespace

Result<CertificateLife> life_of(const std::string& pem) {
  const control::CertificatePtr certificate = control::read_certificate(pem);
  if (!certificate) return corrupt("the certificate is not readable");
  CertificateLife life;
  const bool read = read_time(X509_get0_notBefore(certificate.get()), life.begins_s) &&
                    read_time(X509_get0_notAfter(certificate.get()), life.ends_s);
  ERR_clear_error();
  if (!read || life.ends_s <= life.begins_s) return corrupt("the certificate is good at no time");
  return life;
}

bool has_ended(const CertificateLife& life, std::int64_t now_s) {
  return now_s > life.ends_s + std::min(kDayS, life.span_s() / 10);
}

std::int64_t renewal_due_s(const CertificateLife& life, double spread) {
  const double share = 2.0 / 3 + std::clamp(spread, 0.0, 1.0) / 6;
  return life.begins_s + std::llround(share * static_cast<double>(life.span_s()));
}

std::int64_t warning_due_s(const CertificateLife& life) {
  return life.ends_s - std::min(30 * kDayS, life.span_s() / 3);
}

Duration retry_pause(int failures, std::int64_t left_s, double spread) {
  const std::int64_t doubled = std::int64_t{1} << std::clamp(failures - 1, 0, kDoublingsMax);
  const double most_s = static_cast<double>(std::max<std::int64_t>(left_s, 0)) / 8;
  const double pause_s = std::min(static_cast<double>(std::min(doubled, kHourS)), most_s) *
                         (1 - std::clamp(spread, 0.0, 1.0) / 2);
  return std::max(kPauseMin,
                  std::chrono::duration_cast<Duration>(std::chrono::duration<double>(pause_s)));
}

std::string utc_text(std::int64_t unix_s) {
  const std::time_t time = unix_s;
  std::tm parts{};
  char text[40];
  ::gmtime_r(&time, &parts);
  return std::string(text, std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &parts));
}

std::int64_t unix_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace troupe
