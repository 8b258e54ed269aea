#include "actors/company/post.h"

#include <mutex>

#include "runtime/log.h"

namespace troupe {
namespace {

template <class... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};
template <class... Ts>
Overloaded(Ts...) -> Overloaded<Ts...>;

}  // namespace

std::uint64_t reference_of(const Message& message) {
  return std::visit(Overloaded{
                        [](const Submit& m) { return m.sequence.value; },
                        [](const Cancel& m) { return m.sequence.value; },
                        [](const StepPlan& m) { return m.body.step.value; },
                        [](const Hidden& m) { return m.step.value; },
                        [](const StepResult& m) { return m.step.value; },
                        [](const StepFailed& m) { return m.step.value; },
                        [](const StepAbort& m) { return m.step.value; },
                        [](const Dispatch& m) { return m.call; },
                        [](const ExpertOutput& m) { return m.call; },
                        [](const NotHere& m) { return m.call; },
                        [](const ClientGeneration& m) { return m.query; },
                        [](const auto&) { return std::uint64_t{0}; },
                    },
                    message);
}

void Post::attach(const Address& address, ActorHandle actor) {
  std::unique_lock lock(mutex_);
  actors_[address] = std::move(actor);
}

void Post::detach(const Address& address) {
  std::unique_lock lock(mutex_);
  actors_.erase(address);
}

void Post::detach_node(NodeId node, Incarnation incarnation) {
  std::unique_lock lock(mutex_);
  std::erase_if(actors_, [&](const auto& entry) {
    return entry.first.node == node && entry.first.incarnation == incarnation;
  });
}

void Post::set_lane(NodeId node, Incarnation incarnation, Lane lane) {
  auto entry = std::make_shared<const Node>(Node{incarnation, std::move(lane)});
  std::unique_lock lock(mutex_);
  auto& slot = lanes_[node];
  if (slot && slot->incarnation > incarnation) return;
  slot = std::move(entry);
}

void Post::drop_lane(NodeId node, Incarnation incarnation) {
  std::unique_lock lock(mutex_);
  const auto it = lanes_.find(node);
  if (it != lanes_.end() && it->second->incarnation == incarnation) lanes_.erase(it);
}

Status Post::route(const Envelope& envelope) {
  ActorHandle actor;
  std::shared_ptr<const Node> node;
  {
    std::shared_lock lock(mutex_);
    if (const auto it = actors_.find(envelope.to); it != actors_.end()) {
      actor = it->second;
    } else if (const auto lane = lanes_.find(envelope.to.node); lane != lanes_.end()) {
      node = lane->second;
    }
  }
  if (actor) return actor.deliver(envelope);
  if (!node) return unavailable(to_string(envelope.to) + " cannot be reached: it is not a member.");
  if (node->incarnation != envelope.to.incarnation) {
    fenced_.fetch_add(1, std::memory_order_relaxed);
    return unavailable(to_string(envelope.to) + " cannot be reached: the node lives as #" +
                       std::to_string(node->incarnation.value) + " now.");
  }
  return node->lane(envelope);
}

void Post::send(Envelope envelope) {
  Status sent = route(envelope);
  if (sent.ok() || std::holds_alternative<Undeliverable>(*envelope.message)) return;
  Undeliverable answer{envelope.to, static_cast<std::uint32_t>(envelope.message->index()),
                       reference_of(*envelope.message), sent.error()};
  const Status told = route({envelope.to, envelope.from, message_of(std::move(answer))});
  if (!told.ok())
    spdlog::debug("dropped a message for {}: {}", to_string(envelope.to), sent.error().message);
}

void Post::deliver(Envelope envelope) {
  ActorHandle actor;
  {
    std::shared_lock lock(mutex_);
    if (const auto it = actors_.find(envelope.to); it != actors_.end()) actor = it->second;
  }
  if (actor) {
    const Status delivered = actor.deliver(envelope);
    if (delivered.ok()) return;
  }
  fenced_.fetch_add(1, std::memory_order_relaxed);
  if (std::holds_alternative<Undeliverable>(*envelope.message)) return;
  Undeliverable answer{envelope.to, static_cast<std::uint32_t>(envelope.message->index()),
                       reference_of(*envelope.message),
                       unavailable(to_string(envelope.to) + " does not live here.")};
  const Status told = route({envelope.to, envelope.from, message_of(std::move(answer))});
  if (!told.ok()) spdlog::debug("refused a message for {}", to_string(envelope.to));
}

}  // namespace troupe
