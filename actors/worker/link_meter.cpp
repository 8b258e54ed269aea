#include "actors/worker/link_meter.h"

#include <utility>
#include <variant>

#include "actors/interfaces.h"
#include "runtime/split_mix.h"

namespace troupe {

void LinkMeter::identify(NodeId node, Incarnation incarnation) {
  std::lock_guard lock(mutex_);
  self_ = node;
  incarnation_ = incarnation;
  running_.reset();
}

void LinkMeter::begin(const MeasureLink& order) {
  std::optional<LinkMeasured> over;
  {
    std::lock_guard lock(mutex_);
    running_.emplace(Running{order, LinkMeasurement(order.sizes)});
    over = go_on();
  }
  if (over) around_.report(std::move(*over));
}

void LinkMeter::end(std::uint64_t number) {
  std::lock_guard lock(mutex_);
  if (running_ && (number == 0 || running_->order.number == number)) running_.reset();
}

std::string LinkMeter::progress() const {
  std::lock_guard lock(mutex_);
  return running_ ? running_->measurement.progress() : std::string();
}

bool LinkMeter::take(NodeId node, Incarnation incarnation, const Envelope& envelope) {
  std::optional<LinkMeasured> over;
  if (const auto* probe = std::get_if<LinkProbe>(envelope.message.get())) {
    std::lock_guard lock(mutex_);
    // One that cannot be answered is missed by who sent it.
    (void)send(node, incarnation,
               LinkEcho{probe->number, probe->sequence, tensor(probe->reply_bytes)});
  } else if (const auto* echo = std::get_if<LinkEcho>(envelope.message.get())) {
    std::lock_guard lock(mutex_);
    over = on_echo(node, incarnation, *echo);
  } else {
    return false;
  }
  if (over) around_.report(std::move(*over));
  return true;
}

void LinkMeter::peer_down(NodeId node, Incarnation incarnation, const std::string& reason) {
  std::optional<LinkMeasured> over;
  {
    std::lock_guard lock(mutex_);
    if (running_ && running_->is_with(node, incarnation))
      over = fail("their connection went down: " + reason);
  }
  if (over) around_.report(std::move(*over));
}

std::optional<LinkMeasured> LinkMeter::on_echo(NodeId node, Incarnation incarnation,
                                               const LinkEcho& echo) {
  if (!running_ || echo.number != running_->order.number || !running_->is_with(node, incarnation))
    return std::nullopt;  // of one that was ended
  if (!running_->measurement.echoed(echo.sequence, echo.payload.bytes.size(), around_.now()))
    return fail("the peer sent an echo that was not asked for");
  return go_on();
}

std::optional<LinkMeasured> LinkMeter::go_on() {
  for (const auto& probe : running_->measurement.next(around_.now())) {
    const Status sent = send(
        running_->order.peer, running_->order.incarnation,
        LinkProbe{running_->order.number, probe.sequence, probe.reply_bytes, tensor(probe.bytes)});
    if (!sent.ok()) return fail("a probe could not be sent: " + sent.error().message);
  }
  if (!running_->measurement.done()) return std::nullopt;
  LinkMeasured over{running_->order.number, running_->measurement.figures(), std::nullopt};
  running_.reset();
  return over;
}

LinkMeasured LinkMeter::fail(const std::string& reason) {
  const LinkMeasured over{running_->order.number,
                          {},
                          unavailable("The measurement ended " + running_->measurement.progress() +
                                      ": " + reason + (reason.ends_with('.') ? "" : "."))};
  running_.reset();
  return over;
}

Status LinkMeter::send(NodeId node, Incarnation incarnation, Message message) {
  if (!around_.lane) return unavailable("This worker has no bulk lane.");
  return around_.lane->send(
      node, incarnation,
      {Ref<NodeAgentInbox>(self_, incarnation_).address,
       Ref<NodeAgentInbox>(node, incarnation).address, message_of(std::move(message))});
}

/// Bytes that nothing on the way can compress.
Payload LinkMeter::tensor(std::size_t bytes) {
  if (bytes == 0) return {};
  if (!tensor_ || tensor_->size() < bytes) {
    Buffer made = Buffer::uninitialized((bytes + 7) / 8 * 8);
    std::uint64_t* words = made.as<std::uint64_t>();
    SplitMix random(1);
    for (std::size_t i = 0; i < made.size() / 8; ++i) words[i] = random.next();
    tensor_ = std::make_shared<const Buffer>(std::move(made));
  }
  return Payload::of(tensor_, 0, bytes);
}

}  // namespace troupe
