#include "tools/troupe/head_certificate.h"

#include <utility>

#include "actors/control/file_lock.h"
#include "actors/control/private_file.h"
#include "actors/control/renewal.h"
#include "runtime/log.h"

namespace troupe::cli {
namespace {

bool past_half(const Credentials& side, std::int64_t now_s) {
  const auto life = life_of(side.certificate);
  return life.ok() && now_s - life->begins_s > life->span_s() / 2;
}

}  // namespace

Result<CertificateLife> first_to_renew(const ClusterCredentials& credentials) {
  const auto head = life_of(credentials.head.certificate);
  const auto worker = life_of(credentials.worker.certificate);
  if (!head.ok() || !worker.ok()) return head.ok() ? worker : head;
  return renewal_due_s(*worker, 0) < renewal_due_s(*head, 0) ? worker : head;
}

HeadCertificate::HeadCertificate(ClusterFiles& files, std::int64_t lifetime_s, Use use)
    : files_(files), lifetime_s_(lifetime_s), use_(std::move(use)), current_(files.credentials()) {}

CertificateKeeper::Options HeadCertificate::options(
    std::function<void(const std::string&)> say) const {
  CertificateKeeper::Options options;
  options.name = "The head's certificate";
  options.file = files_.credentials_path();
  if (const auto life = first_to_renew(current_); life.ok()) options.life = *life;
  const auto text = control::read_small_file(files_.credentials_path(), kCredentialsBytesMax);
  const auto there = text.ok() ? parse_cluster_credentials(*text) : text.error();
  if (there.ok() && *there == current_) options.text = *text;
  options.spread = 0;  // before its workers, who take the join file's
  options.say = [say = std::move(say)](bool trouble, const std::string& sentence) {
    CertificateKeeper::log(trouble, sentence);
    if (say) say(sentence);
  };
  return options;
}

Result<std::string> HeadCertificate::read() {
  return control::read_small_file(files_.credentials_path(), kCredentialsBytesMax);
}

Result<CertificateLife> HeadCertificate::adopt(const std::string& text) {
  auto next = parse_cluster_credentials(text);
  if (!next.ok()) return Error{next.error().code, "the file " + next.error().message};
  const std::int64_t now_s = unix_seconds();
  const Status head = may_replace(current_.head, next->head, control::TlsSide::kServer, now_s);
  if (!head.ok()) return Error{head.error().code, "the head's part: " + head.error().message};
  const Status worker =
      may_replace(current_.worker, next->worker, control::TlsSide::kClient, now_s);
  if (!worker.ok())
    return Error{worker.error().code, "the workers' part: " + worker.error().message};
  return begin(std::move(*next));
}

Result<CertificateLife> HeadCertificate::renew() {
  const std::int64_t now_s = unix_seconds();
  RenewedSides which{past_half(current_.head, now_s), past_half(current_.worker, now_s)};
  if (!which.worker) which.head = true;
  auto next = renew_cluster_credentials(current_, which, lifetime_s_);
  if (!next.ok()) return next.error();
  return begin(std::move(*next));
}

Result<CertificateLife> HeadCertificate::begin(ClusterCredentials next) {
  const auto life = first_to_renew(next);
  if (!life.ok()) return life;
  if (const Status used = use_(next); !used.ok()) return used.error();
  current_ = std::move(next);
  if (const Status written = files_.use(current_); !written.ok())
    logger().warn("{}", written.error().message);
  return life;
}

Result<std::string> HeadCertificate::store(const std::string& expected) {
  std::string text = format_cluster_credentials(current_);
  const Status written = control::replace_private_file(files_.credentials_path(), expected, text,
                                                       kCredentialsBytesMax);
  return written.ok() ? Result<std::string>(std::move(text)) : written.error();
}

}  // namespace troupe::cli
