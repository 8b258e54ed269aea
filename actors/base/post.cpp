#include "actors/base/post.h"

#include <mutex>

#include "actors/base/undeliverable.h"
#include "runtime/log.h"

namespace troupe {
namespace {

/// Steps and answers that a node may have under way are far fewer.
constexpr std::size_t kHeldMax = 1u << 16;

}  // namespace

void Post::attach(const Address& address, std::shared_ptr<Mailbox> mailbox) {
  std::unique_lock lock(mutex_);
  actors_[address] = std::move(mailbox);
}

std::shared_ptr<Mailbox> Post::detach(const Address& address) {
  std::unique_lock lock(mutex_);
  const auto node = actors_.extract(address);
  return node ? node.mapped() : nullptr;
}

std::shared_ptr<Mailbox> Post::find(const Address& address) const {
  std::shared_lock lock(mutex_);
  const auto it = actors_.find(address);
  return it == actors_.end() ? nullptr : it->second;
}

void Post::set_lane(NodeId node, Incarnation incarnation, SendByLane lane) {
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

// --- Mail that waits ----------------------------------------------------------------------------

void Post::hold(NodeId node, Incarnation incarnation) {
  std::unique_lock lock(mutex_);
  held_.try_emplace(node, Held{incarnation, {}});
  holding_ = true;
}

/// Until nothing waits any more, what is sent meanwhile waits behind it.
void Post::end_hold(NodeId node, Incarnation incarnation, bool send_it) {
  for (;;) {
    std::vector<Envelope> mail;
    {
      std::unique_lock lock(mutex_);
      const auto it = held_.find(node);
      if (it == held_.end() || it->second.incarnation != incarnation) return;
      mail.swap(it->second.mail);
      if (mail.empty() || !send_it) {
        held_.erase(it);
        holding_ = !held_.empty();
        return;
      }
    }
    for (const Envelope& envelope : mail)
      if (const Status sent = route(envelope); !sent.ok()) answer(envelope, sent.error());
  }
}

/// None: it does not have to wait.
std::optional<Status> Post::keep(const Envelope& envelope) {
  if (!holding_ || envelope.to.node == envelope.from.node) return std::nullopt;
  std::unique_lock lock(mutex_);
  const auto it = held_.find(envelope.from.node);
  if (it == held_.end() || it->second.incarnation != envelope.from.incarnation) return std::nullopt;
  if (it->second.mail.size() >= kHeldMax)
    return resource_exhausted("Too much waits until the head has renewed this worker's lease.");
  it->second.mail.push_back(envelope);
  return Status();
}

// --- Mail that goes -----------------------------------------------------------------------------

Status Post::route(const Envelope& envelope) {
  std::shared_ptr<Mailbox> mailbox;
  std::shared_ptr<const Node> node;
  {
    std::shared_lock lock(mutex_);
    if (const auto it = actors_.find(envelope.to); it != actors_.end()) {
      mailbox = it->second;
    } else if (const auto lane = lanes_.find(envelope.to.node); lane != lanes_.end()) {
      node = lane->second;
    }
  }
  if (mailbox) return mailbox->put(Mail(envelope));
  if (!node) return unavailable(to_string(envelope.to) + " cannot be reached: it is not a member.");
  if (node->incarnation != envelope.to.incarnation) {
    fenced_.fetch_add(1, std::memory_order_relaxed);
    return unavailable(to_string(envelope.to) + " cannot be reached: the node lives as #" +
                       std::to_string(node->incarnation.value) + " now.");
  }
  return node->lane(envelope);
}

/// Tells the sender; what is itself such an answer is dropped.
void Post::answer(const Envelope& envelope, Error why) {
  if (std::holds_alternative<Undeliverable>(*envelope.message)) return;
  const Status told = route(
      {envelope.to, envelope.from, message_of(undeliverable(envelope, std::move(why)))});
  if (!told.ok()) logger().debug("dropped a message for {}", to_string(envelope.to));
}

void Post::send(Envelope envelope) {
  const std::optional<Status> kept = keep(envelope);
  const Status sent = kept ? *kept : route(envelope);
  if (!sent.ok()) answer(envelope, sent.error());
}

void Post::deliver(Envelope envelope) {
  const auto mailbox = find(envelope.to);
  if (!mailbox) {
    fenced_.fetch_add(1, std::memory_order_relaxed);
    return answer(envelope, unavailable(to_string(envelope.to) + " does not live here."));
  }
  if (const Status put = mailbox->put(Mail(envelope)); !put.ok()) answer(envelope, put.error());
}

bool Post::tell(Mail mail) {
  const auto mailbox = find(mail.envelope.to);
  if (!mailbox) return false;
  const Address to = mail.envelope.to;
  const Status told = mailbox->put(std::move(mail));
  if (!told.ok()) logger().error("lost a node's own message for {}", to_string(to));
  return told.ok();
}

}  // namespace troupe
