#include "actors/control/certificate_keeper.h"

#include <openssl/rand.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "runtime/log.h"

namespace troupe {
namespace {

/// A look is a read of some thousand bytes.
constexpr Duration kLookEvery = std::chrono::seconds(2);
constexpr Duration kLookEveryMin = std::chrono::milliseconds(200);
constexpr Duration kWarnEvery = std::chrono::hours(24);

/// Longer ones, such as the life of a certificate until the year 9999, do not fit into a Duration.
constexpr std::int64_t kSecondsMax = 100 * kCertificateLifetimeS;

Duration seconds(std::int64_t s) {
  return std::chrono::seconds(std::clamp<std::int64_t>(s, 0, kSecondsMax));
}

std::string without_stop(std::string text) {
  if (text.ends_with('.')) text.pop_back();
  return text;
}

std::string in_text(Duration pause) {
  const auto s = std::chrono::ceil<std::chrono::seconds>(pause).count();
  return s < 120 ? std::to_string(s) + " s" : std::to_string(s / 60) + " min";
}

}  // namespace

CertificateKeeper::CertificateKeeper(Options options, HeldCertificate& held, TimePoint now)
    : options_(std::move(options)), held_(held), since_(now), seen_(options_.text), used_(seen_) {
  begin(options_.life, now);
}

void CertificateKeeper::begin(const CertificateLife& life, TimePoint now) {
  life_ = life;
  since_ = now;
  wall_counts_ = true;
  unstored_ = false;
  failures_ = 0;
  retry_at_ = warn_at_ = now;
}

Duration CertificateKeeper::step(std::int64_t wall_s, TimePoint now) {
  if (look(now) && now >= retry_at_) {
    if (due(wall_s, now) && held_.renewable())
      renew(wall_s, now);
    else if (unstored_)
      store(now);
  }
  warn_of_end(wall_s, now);
  return std::clamp(seconds(life_.span_s()) / 30, kLookEveryMin, kLookEvery);
}

bool CertificateKeeper::look(TimePoint now) {
  auto text = held_.read();
  if (!text.ok()) {
    if (!std::exchange(unreadable_, true))
      options_.say(true, options_.name + " stays as it is: " + text.error().message);
    return true;  // which keeps nothing from being renewed
  }
  unreadable_ = false;
  if (*text == seen_) {
    changed_to_.clear();
    return true;
  }
  // Who writes in place is not done yet, perhaps.
  if (*text != changed_to_) {
    changed_to_ = std::move(*text);
    return false;
  }
  seen_ = std::exchange(changed_to_, {});
  const std::string before = held_.in_use();
  const auto adopted = held_.adopt(seen_);
  if (!adopted.ok()) {
    options_.say(true, "What is in " + options_.file + " now is not used: " +
                           without_stop(adopted.error().message) + ". " + options_.name +
                           " stays as it was, until " + utc_text(life_.ends_s) + ".");
    return true;
  }
  used_ = seen_;
  if (held_.in_use() == before) return true;  // something else in the file has changed
  begin(*adopted, now);
  options_.say(false, options_.name + " is the new one of " + options_.file +
                          " from now on, until " + utc_text(life_.ends_s) + ".");
  return true;
}

bool CertificateKeeper::due(std::int64_t wall_s, TimePoint now) const {
  const std::int64_t due_s = renewal_due_s(life_, options_.spread);
  return (wall_counts_ && wall_s >= due_s) || now - since_ >= seconds(due_s - life_.begins_s);
}

void CertificateKeeper::renew(std::int64_t wall_s, TimePoint now) {
  const auto renewed = held_.renew();
  if (!renewed.ok()) {
    // By a wrong clock it may have ended long ago.
    const std::int64_t left_s = life_.ends_s > wall_s ? life_.ends_s - wall_s : life_.span_s();
    const Duration pause = retry_pause(++failures_, left_s, options_.spread);
    retry_at_ = now + pause;
    if (failures_ > 1 && now < warn_at_) return;
    warn_at_ = now + std::min(kWarnEvery, seconds(left_s) / 4);
    options_.say(true, options_.name + " ends at " + utc_text(life_.ends_s) +
                           " and cannot be renewed: " + without_stop(renewed.error().message) +
                           ". It is tried again, next in " + in_text(pause) + ".");
    return;
  }
  begin(*renewed, now);
  wall_counts_ = wall_s >= life_.begins_s && !due(wall_s, now);
  options_.say(false, options_.name + " was renewed: it ends at " + utc_text(life_.ends_s) + "." +
                          (wall_counts_ ? "" : " This machine's clock is wrong: set it."));
  store(now);
}

void CertificateKeeper::store(TimePoint now) {
  // What was refused may be what the next start is to have, and the only copy of it.
  auto text = seen_ == used_ ? held_.store(seen_)
                             : Result<std::string>(refused("What is in " + options_.file +
                                                           " now is somebody's, and is left."));
  const bool told = std::exchange(unstored_, !text.ok());
  if (text.ok()) {
    seen_ = used_ = std::move(*text);
    failures_ = 0;
    if (told) options_.say(false, options_.name + " is in " + options_.file + " now.");
    return;
  }
  retry_at_ = now + retry_pause(++failures_, life_.span_s(), options_.spread);
  if (!told)
    options_.say(true, options_.name +
                           " is used, but is lost when this process ends: " + text.error().message);
}

void CertificateKeeper::warn_of_end(std::int64_t wall_s, TimePoint now) {
  if (held_.renewable() || now < warn_at_ || wall_s < warning_due_s(life_)) return;
  warn_at_ = now + kWarnEvery;
  options_.say(true, options_.name + (wall_s < life_.ends_s ? " ends at " : " ended at ") +
                         utc_text(life_.ends_s) +
                         " and cannot be renewed here; put another one "
                         "into " +
                         options_.file + ".");
}

void CertificateKeeper::log(bool trouble, const std::string& sentence) {
  logger().log(trouble ? spdlog::level::warn : spdlog::level::info, "{}", sentence);
}

Result<std::unique_ptr<CertificateWatch>> CertificateWatch::start(
    CertificateKeeper::Options options, HeldCertificate& held) {
  const std::string name = options.name;
  try {
    return std::unique_ptr<CertificateWatch>(new CertificateWatch(std::move(options), held));
  } catch (const std::system_error& why) {
    return unavailable(name + " cannot be watched: no thread is to be had (" +
                       why.code().message() + ").");
  }
}

CertificateWatch::CertificateWatch(CertificateKeeper::Options options, HeldCertificate& held)
    : keeper_(std::move(options), held, now()), thread_([this] { run(); }) {}

CertificateWatch::~CertificateWatch() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void CertificateWatch::run() {
  std::unique_lock lock(mutex_);
  while (!over_) {
    lock.unlock();
    const Duration pause = keeper_.step(unix_seconds(), now());
    lock.lock();
    changed_.wait_for(lock, pause, [this] { return over_; });
  }
}

double drawn_spread() {
  std::uint16_t drawn = 0;
  if (RAND_bytes(reinterpret_cast<unsigned char*>(&drawn), sizeof drawn) != 1) return 0;
  return static_cast<double>(drawn) / 65536;
}

}  // namespace troupe
