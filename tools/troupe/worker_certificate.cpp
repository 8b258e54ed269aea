#include "tools/troupe/worker_certificate.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "actors/control/file_lock.h"
#include "actors/control/private_file.h"
#include "actors/control/renewal.h"
#include "runtime/log.h"

namespace troupe::cli {
namespace {

/// Nothing waits for it but the end of the process.
constexpr Duration kAskDeadline = std::chrono::seconds(2);

}  // namespace

bool is_heads_own(const std::string& join_path) {
  std::error_code failed;
  return std::filesystem::exists(
      std::filesystem::path(join_path).replace_filename(kCredentialsFile), failed);
}

WorkerCertificate::WorkerCertificate(std::string path, JoinFile join, HeadLink& link)
    : path_(std::move(path)), link_(link), join_(std::move(join)), is_heads_(is_heads_own(path_)) {}

CertificateKeeper::Options WorkerCertificate::options() const {
  CertificateKeeper::Options options;
  options.name = "This worker's certificate";
  options.file = path_;
  if (const auto life = life_of(join_.worker.certificate); life.ok()) options.life = *life;
  const auto text = control::read_small_file(path_, kJoinFileBytesMax);
  const auto there = text.ok() ? parse_join_file(*text, path_) : text.error();
  if (there.ok() && there->worker == join_.worker) options.text = *text;
  options.spread = drawn_spread();
  return options;
}

void WorkerCertificate::learn(const std::string& head) {
  const std::lock_guard lock(mutex_);
  if (!is_heads_ && learnt_.size() < kJoinFileHeadsMax && std::ranges::count(learnt_, head) == 0)
    learnt_.push_back(head);
}

/// What it writes is then found changed, and adopted, as if an operator had put it there.
Result<std::string> WorkerCertificate::read() {
  auto text = control::read_small_file(path_, kJoinFileBytesMax);
  return text.ok() ? with_heads_learnt(std::move(*text)) : text;
}

Result<std::string> WorkerCertificate::with_heads_learnt(std::string text) {
  std::vector<std::string> learnt;
  {
    const std::lock_guard lock(mutex_);
    learnt = learnt_;
  }
  if (learnt.empty()) return text;
  auto join = parse_join_file(text, path_);
  // Another certificate is to be judged first, or a renewed one to be stored.
  if (!join.ok() || join->worker != join_.worker) return text;
  const std::size_t known = join->heads.size();
  for (const std::string& head : learnt)
    if (std::ranges::find(join->heads, head) == join->heads.end() &&
        join->heads.size() < kJoinFileHeadsMax)
      join->heads.push_back(head);
  if (join->heads.size() > known) {
    std::string longer = format_join_file(*join);
    const Status written = control::replace_private_file(path_, text, longer, kJoinFileBytesMax);
    if (!written.ok()) {
      if (!std::exchange(unwritten_, true))
        logger().warn("{} does not name {} yet: {}", path_, learnt.back(),
                      written.error().message);
      return text;
    }
    text = std::move(longer);
  }
  unwritten_ = false;
  const std::lock_guard lock(mutex_);
  learnt_.erase(learnt_.begin(), learnt_.begin() + static_cast<std::ptrdiff_t>(learnt.size()));
  return text;
}

Result<CertificateLife> WorkerCertificate::adopt(const std::string& text) {
  auto next = parse_join_file(text, path_);
  if (!next.ok()) return next.error();
  const Status good =
      may_replace(join_.worker, next->worker, control::TlsSide::kClient, unix_seconds());
  if (!good.ok()) return good.error();
  auto life = begin(std::move(next->worker));
  if (!life.ok()) return life;
  join_.heads = std::move(next->heads);
  // A head may have come back at another address.
  for (auto head = join_.heads.rbegin(); head != join_.heads.rend(); ++head) link_.seek_also(*head);
  return life;
}

/// One head a call, each in its turn: after a take-over the one that was tried last is no head.
Result<CertificateLife> WorkerCertificate::renew() {
  const std::vector<HostPort> heads = link_.sought();
  if (heads.empty()) return unavailable("No head is known.");
  auto next = renew_credentials(join_.worker, heads[asked_ % heads.size()], kAskDeadline);
  if (!next.ok()) ++asked_;
  if (!next.ok()) return next.error();
  asked_ = 0;
  return begin(std::move(*next));
}

Result<CertificateLife> WorkerCertificate::begin(Credentials next) {
  auto life = life_of(next.certificate);
  if (!life.ok()) return life;
  if (const Status used = link_.use(next); !used.ok()) return used.error();
  join_.worker = std::move(next);
  return life;
}

Result<std::string> WorkerCertificate::store(const std::string& expected) {
  std::string text = format_join_file(join_);
  const Status written = control::replace_private_file(path_, expected, text, kJoinFileBytesMax);
  return written.ok() ? Result<std::string>(std::move(text)) : written.error();
}

}  // namespace troupe::cli
