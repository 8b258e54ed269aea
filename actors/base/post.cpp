#include "actors/base/post.h"

#include <mutex>

#include "actors/base/undeliverable.h"
#include "runtime/log.h"

namespace troupe {

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
  if (const Status sent = route(envelope); !sent.ok()) answer(envelope, sent.error());
}

void Post::deliver(Envelope envelope) {
  const auto mailbox = find(envelope.to);
  if (mailbox && mailbox->put(Mail(envelope)).ok()) return;
  fenced_.fetch_add(1, std::memory_order_relaxed);
  answer(envelope, unavailable(to_string(envelope.to) + " does not live here."));
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
