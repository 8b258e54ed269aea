#include "actors/api/operation.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>

#include "runtime/clock.h"

namespace troupe {
namespace {

/// The head is asked for its status so often, to see that it still answers at all.
constexpr Duration kCheckInterval = std::chrono::seconds(2);
constexpr Duration kAnswerDeadline = std::chrono::seconds(10);
static_assert(kCheckInterval < kAnswerDeadline);

/// What comes from the head, for the thread that waits.
struct Inbox {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<OperationProgress> news;  // guarded by mutex
  std::optional<std::string> down;     // guarded by mutex
  TimePoint heard = now();             // guarded by mutex

  void on_message(const Message& message) {
    {
      std::lock_guard lock(mutex);
      heard = now();
      if (const auto* progress = std::get_if<OperationProgress>(&message);
          progress && progress->query == kOperationQuery)
        news.push_back(*progress);
    }
    changed.notify_all();
  }
  void on_down(const std::string& reason) {
    {
      std::lock_guard lock(mutex);
      down = reason;
    }
    changed.notify_all();
  }
};

Result<std::string> follow(ClientSession& session, Inbox& inbox,
                           const std::function<void(const OperationProgress&)>& on_progress) {
  std::uint64_t checks = kOperationQuery;
  while (true) {
    std::deque<OperationProgress> news;
    {
      std::unique_lock lock(inbox.mutex);
      inbox.changed.wait_for(lock, kCheckInterval,
                             [&] { return !inbox.news.empty() || inbox.down; });
      news.swap(inbox.news);
      // What came before the end counts.
      if (news.empty() && inbox.down)
        return unavailable("The head went away before it was done: " + *inbox.down);
      if (now() - inbox.heard > kAnswerDeadline)
        return deadline_exceeded("The head no longer answers; `troupe status` tells how it is.");
    }
    for (const auto& one : news) {
      if (one.error) return *one.error;
      if (one.finished) return one.text;
      if (on_progress) on_progress(one);
    }
    if (news.empty()) (void)session.send(StatusQuery{++checks});
  }
}

}  // namespace

Result<std::string> follow_operation(
    const OpenSession& open, const std::function<Status(ClientSession&)>& ask,
    const std::function<void(const OperationProgress&)>& on_progress) {
  auto inbox = std::make_shared<Inbox>();
  auto session = open({.message = [inbox](const Message& message) { inbox->on_message(message); },
                       .down = [inbox](const std::string& reason) { inbox->on_down(reason); }});
  if (!session.ok()) return session.error();
  if (const Status sent = ask(**session); !sent.ok()) return sent.error();
  return follow(**session, *inbox, on_progress);
}

}  // namespace troupe
