#include "tools/troupe/status_link.h"

#include <utility>

#include "tools/troupe/cluster_files.h"
#include "tools/troupe/operation.h"

namespace troupe::cli {
namespace {

/// A head that is asked and says nothing for so long is taken for gone.
constexpr Duration kAnswerDeadline = std::chrono::seconds(3);
constexpr Duration kConnectDeadline = std::chrono::seconds(1);

}  // namespace

StatusLink::StatusLink(CafSystem& caf, std::string state_dir, Duration interval,
                       std::function<void()> wake)
    : caf_(caf), state_dir_(std::move(state_dir)), interval_(interval), wake_(std::move(wake)) {
  thread_ = std::thread([this] { run(); });
}

StatusLink::~StatusLink() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::optional<Result<std::string>> StatusLink::take_status() {
  std::lock_guard lock(mutex_);
  return std::exchange(status_, std::nullopt);
}

std::vector<OperationProgress> StatusLink::take_progress() {
  std::lock_guard lock(mutex_);
  return std::exchange(progress_, {});
}

void StatusLink::order(const console::Command& command) {
  {
    std::lock_guard lock(mutex_);
    orders_.push_back(command);
  }
  changed_.notify_all();
}

void StatusLink::publish(Result<std::string> status) {
  {
    std::lock_guard lock(mutex_);
    status_ = std::move(status);
  }
  wake_();
}

void StatusLink::refuse_orders(const std::string& why) {
  std::lock_guard lock(mutex_);
  for ([[maybe_unused]] const auto& order : orders_) under_way_.push_back(0);
  orders_.clear();
  for (const std::uint64_t query : under_way_)
    progress_.push_back({query, 0, 0, "", true, unavailable(why)});
  under_way_.clear();
}

void StatusLink::run() {
  const auto over = [this](Duration patience) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, patience, [this] { return stopping_; });
  };
  do {
    const auto join = find_join_file(state_dir_);
    if (!join.ok()) {
      publish(join.error());
      continue;
    }
    {
      std::lock_guard lock(mutex_);
      down_.reset();
      answered_ = asked_;
    }
    auto session = ClientSession::open(caf_.system(), *join, "troupe top", kConnectDeadline,
                                       {.message = [this](const Message& m) { on_message(m); },
                                        .down =
                                            [this](const std::string& reason) {
                                              {
                                                std::lock_guard lock(mutex_);
                                                down_ = reason;
                                              }
                                              changed_.notify_all();
                                            }});
    if (!session.ok()) {
      refuse_orders(session.error().message);
      publish(no_head(session.error(), state_dir_));
      continue;
    }
    serve(**session);
  } while (!over(interval_));
}

void StatusLink::serve(ClientSession& session) {
  TimePoint ask_at = now(), give_up_at = ask_at;
  while (true) {
    std::optional<std::string> failure;
    std::uint64_t question = 0;
    {
      std::unique_lock lock(mutex_);
      const bool waiting = answered_ != asked_;
      changed_.wait_until(lock, waiting ? give_up_at : ask_at, [&] {
        return stopping_ || down_ || !orders_.empty() || (waiting && answered_ == asked_);
      });
      if (stopping_) return;
      failure = down_;
      if (!failure && answered_ != asked_ && now() >= give_up_at)
        failure = "The head does not answer.";
      // One question at a time: a slow head is not asked more.
      if (answered_ == asked_ && now() >= ask_at) {
        question = ++asked_;
        ask_at = now() + interval_;
        give_up_at = now() + kAnswerDeadline;
      }
    }
    if (failure) {
      refuse_orders("The head went away before it was done: " + *failure);
      return publish(unavailable(*failure));
    }
    if (question != 0) (void)session.send(StatusQuery{question});  // `down` tells of a failure
    send_orders(session);
  }
}

void StatusLink::send_orders(ClientSession& session) {
  while (true) {
    console::Command order;
    std::uint64_t query = 0;
    {
      std::lock_guard lock(mutex_);
      if (orders_.empty()) return;
      order = std::move(orders_.front());
      orders_.pop_front();
      query = ++last_order_;
      under_way_.push_back(query);
    }
    if (order.kind == console::Command::Kind::kRebalance) {
      (void)session.send(RebalanceQuery{query});
      continue;
    }
    const auto node = parse_node(order.node);
    if (node.ok()) (void)session.send(DrainQuery{query, *node});
  }
}

void StatusLink::on_message(const Message& message) {
  if (const auto* reply = std::get_if<StatusReply>(&message)) {
    {
      std::lock_guard lock(mutex_);
      if (reply->query != asked_) return;
      answered_ = asked_;
    }
    changed_.notify_all();
    return publish(reply->json);
  }
  if (const auto* news = std::get_if<OperationProgress>(&message)) {
    {
      std::lock_guard lock(mutex_);
      if (news->finished || news->error) std::erase(under_way_, news->query);
      progress_.push_back(*news);
    }
    wake_();
  }
}

}  // namespace troupe::cli
