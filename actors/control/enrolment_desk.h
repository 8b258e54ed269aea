#pragma once

#include <condition_variable>
#include <deque>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "actors/control/certificate_life.h"
#include "actors/control/control_lane.h"
#include "actors/control/credentials.h"
#include "actors/control/enrolment_text.h"
#include "actors/control/token_book.h"
#include "actors/control/wrong_secrets.h"
#include "runtime/line_limit.h"

namespace troupe {

/// Where the head turns tokens, and members' certificates, into new certificates: on a
/// thread of its own, since it waits for disks.
class EnrolmentDesk {
 public:
  /// What it signs is good for `lifetime_s`.
  EnrolmentDesk(ClusterCredentials credentials, const std::filesystem::path& state_dir,
                std::int64_t lifetime_s = kCertificateLifetimeS);
  /// Requests that wait get no answer.
  ~EnrolmentDesk();

  /// Others, for what is asked for from now on. From any thread.
  void use(ClusterCredentials credentials);

  /// From any thread; never blocks. `then` is called once, on the desk's thread or, when too many
  /// wait, at once. An empty reply: not now.
  void take(DeskVisit visit, std::function<void(std::string reply)> then);

 private:
  struct Visit {
    DeskVisit who;
    std::function<void(std::string)> then;
  };
  void run();
  control::EnrolmentReply serve(const DeskVisit& visit);
  control::EnrolmentReply redeem(const DeskVisit& visit);
  control::EnrolmentReply certify(const std::string& signing_request,
                                  const std::string& name) const;

  ClusterCredentials credentials_;  // of the thread
  const std::int64_t lifetime_s_;
  TokenBook book_;               // of the thread
  control::WrongSecrets wrong_;  // of the thread
  LineLimit lines_, renewals_;   // of the thread
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Visit> waiting_;               // guarded by mutex_
  std::optional<ClusterCredentials> next_;  // guarded by mutex_
  bool stopping_ = false;      // guarded by mutex_
  std::thread thread_;
};

}  // namespace troupe
