#include "actors/control/enrolment_desk.h"

#include <openssl/err.h>

#include <utility>

#include "actors/control/signing.h"
#include "runtime/log.h"

namespace troupe {
namespace {

constexpr std::size_t kVisitsMax = 64;
constexpr std::string_view kSignsNothingSentence =
    "The head has no key of the cluster's CA, and cannot renew certificates; replace them by hand.";

std::string host_of(const std::string& peer) { return peer.substr(0, peer.rfind(':')); }

control::EnrolmentReply no(std::string why) { return {{}, {}, std::move(why)}; }

}  // namespace

EnrolmentDesk::EnrolmentDesk(ClusterCredentials credentials, const std::filesystem::path& state_dir,
                             std::int64_t lifetime_s)
    : credentials_(std::move(credentials)),
      lifetime_s_(lifetime_s),
      book_(state_dir),
      thread_([this] { run(); }) {}

EnrolmentDesk::~EnrolmentDesk() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void EnrolmentDesk::use(ClusterCredentials credentials) {
  const std::lock_guard lock(mutex_);
  next_ = std::move(credentials);
}

void EnrolmentDesk::take(DeskVisit visit, std::function<void(std::string)> then) {
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.size() < kVisitsMax) {
      waiting_.push_back({std::move(visit), std::move(then)});
      changed_.notify_all();
      return;
    }
  }
  then({});  // it asks again
}

void EnrolmentDesk::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
    if (stopping_) return;
    const Visit visit = std::move(waiting_.front());
    waiting_.pop_front();
    if (next_) credentials_ = *std::exchange(next_, std::nullopt);
    lock.unlock();
    const control::EnrolmentReply reply = serve(visit.who);
    if (!reply.refusal.empty())
      lines_.warn(visit.who.peer + " was given no certificate: " + reply.refusal, now());
    const bool answers = !reply.refusal.empty() || !reply.certificate.empty();
    visit.then(answers ? format_enrolment(reply) : std::string());
    lock.lock();
  }
}

control::EnrolmentReply EnrolmentDesk::serve(const DeskVisit& visit) {
  if (visit.certificate.empty()) return redeem(visit);
  const auto asked = control::parse_renewal(visit.request);
  if (!asked.ok())
    return no("The request for a renewal " + asked.error().message +
              "; use the head's version of Troupe here too.");
  if (credentials_.ca_key.empty()) return no(std::string(kSignsNothingSentence));
  // It may have come just before.
  if (std::ranges::find(credentials_.head.revoked, visit.certificate) !=
      credentials_.head.revoked.end()) return {};
  auto reply = certify(*asked, visit.certificate);
  if (reply.refusal.empty())
    if (const auto line = renewals_.line_of(visit.peer + " has its next certificate.", now());
        !line.empty())
      logger().info("{}", line);
  return reply;
}

control::EnrolmentReply EnrolmentDesk::redeem(const DeskVisit& visit) {
  const std::string host = host_of(visit.peer);
  const auto request = control::parse_enrolment_request(visit.request);
  const auto good = [&] { return request.ok() && book_.knows(request->token, request->secret); };
  if (!wrong_.may_try(host, now()) && !good())
    return no("Too many wrong tokens came from " + host + "; try again in a minute.");
  if (!request.ok()) {
    wrong_.note(host, now());
    return no("The request with the token " + request.error().message +
              "; use the head's version of Troupe here too.");
  }
  if (credentials_.ca_key.empty()) return no(std::string(kNoTokensSentence));
  const Status redeemed =
      book_.redeem(request->token, request->secret, request->signing_request, unix_seconds());
  if (!redeemed.ok()) {
    const ErrorCode code = redeemed.error().code;
    if (code == ErrorCode::kNotFound) wrong_.note(host, now());
    if (code == ErrorCode::kNotFound || code == ErrorCode::kRefused)
      return no(redeemed.error().message);
    // The head's own trouble, which may pass: nothing for a stranger, who asks again.
    lines_.warn(redeemed.error().message, now());
    return {};
  }
  // Who asks again gets one of the same name.
  auto reply = certify(request->signing_request,
                       sha256_hex(request->signing_request).substr(0, kCertificateNameLength));
  if (reply.refusal.empty())
    logger().info("{} has a certificate now, by the token {}.", visit.peer, request->token);
  return reply;
}

/// What the request says of itself is not looked at.
control::EnrolmentReply EnrolmentDesk::certify(const std::string& signing_request,
                                               const std::string& name) const {
  const auto asked = control::read_request(signing_request);
  if (!asked)
    return no("The request for a certificate is not readable; use the head's version here.");
  const auto ca = control::read_certificate(credentials_.head.ca_certificate);
  const auto ca_key = control::read_key(credentials_.ca_key);
  ERR_clear_error();
  const auto certificate = control::sign(control::worker_role(lifetime_s_),
                                         X509_REQ_get0_pubkey(asked.get()), ca.get(), ca_key.get(),
                                         name);
  if (!certificate)
    return no("The certificate cannot be made: " + control::take_openssl_error() + ".");
  return {credentials_.head.ca_certificate, control::write_certificate(certificate.get()), {}};
}

}  // namespace troupe
