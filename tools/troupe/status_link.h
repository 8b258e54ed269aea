#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "actors/api/client_session.h"
#include "actors/control/caf_system.h"
#include "runtime/clock.h"
#include "runtime/result.h"
#include "tools/troupe/console/ui.h"
#include "transport/message.h"

namespace troupe::cli {

/// Asks a head for its status again and again, and connects again when it goes away: it may come
/// back at another address, so the join file is read every time. On a thread of its own, for it
/// waits; what comes is taken by another.
class StatusLink {
 public:
  /// `wake` is called from any thread when there is something to take.
  StatusLink(CafSystem& caf, std::string state_dir, Duration interval, std::function<void()> wake);
  /// Waits for a connection that is being made, a second at most.
  ~StatusLink();

  /// The newest status, or why there is none; none if nothing has come since.
  std::optional<Result<std::string>> take_status();
  /// What became of orders, in order.
  std::vector<OperationProgress> take_progress();
  /// Has the head drain a node or rebalance; `take_progress` tells the rest.
  void order(const console::Command& command);

 private:
  void run();
  void serve(ClientSession& session);
  void on_message(const Message& message);
  void publish(Result<std::string> status);
  void send_orders(ClientSession& session);
  void refuse_orders(const std::string& why);

  CafSystem& caf_;
  const std::string state_dir_;
  const Duration interval_;
  const std::function<void()> wake_;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;                      // guarded by mutex_
  std::optional<std::string> down_;            // guarded by mutex_; why the session ended
  std::uint64_t asked_ = 0, answered_ = 0;     // guarded by mutex_; numbers of status queries
  std::optional<Result<std::string>> status_;  // guarded by mutex_
  std::deque<console::Command> orders_;        // guarded by mutex_
  std::vector<std::uint64_t> under_way_;       // guarded by mutex_; orders that have no end yet
  std::vector<OperationProgress> progress_;    // guarded by mutex_
  std::uint64_t last_order_ = 0;               // guarded by mutex_

  std::thread thread_;
};

}  // namespace troupe::cli
