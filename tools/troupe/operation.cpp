#include "tools/troupe/operation.h"

#include <charconv>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <mutex>
#include <optional>

#include "actors/control/caf_system.h"
#include "runtime/clock.h"
#include "tools/troupe/cluster_files.h"

namespace troupe::cli {
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

void print(const OperationProgress& news, std::string& last) {
  std::string line = news.text;
  if (news.total > 0)
    line = std::to_string(news.done) + " of " + std::to_string(news.total) +
           (line.empty() ? "" : ": " + line);
  if (line.empty() || line == last) return;
  std::fprintf(stderr, "%s\n", line.c_str());
  last = line;
}

Result<std::string> follow(ClientSession& session, Inbox& inbox) {
  std::string last;
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
      print(one, last);
    }
    if (news.empty()) (void)session.send(StatusQuery{++checks});
  }
}

}  // namespace

Result<NodeId> parse_node(const std::string& text) {
  constexpr std::string_view kPrefix = "node-";
  std::string_view number = text;
  if (number.starts_with(kPrefix)) number.remove_prefix(kPrefix.size());
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
  if (error != std::errc() || end != number.data() + number.size() || value == 0)
    return invalid_argument("'" + text + "' is no node; `troupe status` lists them, as node-1.");
  return NodeId{value};
}

Result<std::string> follow_operation(const std::string& state_dir, const std::string& program,
                                     const std::function<Status(ClientSession&)>& ask) {
  auto join = find_join_file(state_dir);
  if (!join.ok()) return join.error();
  auto caf = CafSystem::make();
  if (!caf.ok()) return caf.error();
  auto inbox = std::make_shared<Inbox>();
  auto session = ClientSession::open(
      (*caf)->system(), *join, program, std::chrono::seconds(3),
      {.message = [inbox](const Message& message) { inbox->on_message(message); },
       .down = [inbox](const std::string& reason) { inbox->on_down(reason); }});
  if (!session.ok()) return session.error();
  if (const Status sent = ask(**session); !sent.ok()) return sent.error();
  return follow(**session, *inbox);
}

}  // namespace troupe::cli
