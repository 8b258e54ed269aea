#include "transport/parcels/parcel_sender.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/log.h"
#include "transport/codec.h"

namespace troupe {
namespace {

constexpr TensorRank kSenderRank{0, 2};

}  // namespace

std::uint64_t ParcelSender::sent() const {
  std::lock_guard lock(mutex_);
  return sent_;
}

std::uint64_t ParcelSender::resent() const {
  std::lock_guard lock(mutex_);
  return resent_;
}

std::optional<Status> ParcelSender::send(const Envelope& envelope) {
  Todo todo;
  std::optional<Status> sent;
  {
    std::lock_guard lock(mutex_);
    if (closed_) return std::nullopt;
    if (group_.number == 0 && settling_ == 0 && now() >= form_after_) form();
    const Payload& tensor = *transport::payload_of(*envelope.message);
    const std::size_t bytes = tensor.bytes.size();
    if (bytes == 0 || !group_.up() || unheard_.size() >= limits::kParcelsUnheardMax ||
        unheard_bytes_ + bytes > limits::kParcelBytesUnheardMax)
      return std::nullopt;
    auto header = transport::encode(envelope);
    if (!header.ok()) return Status(header.error());
    if (header->size() > limits::kParcelHeaderBytesMax) return std::nullopt;
    nccl::Communicator::Exchange exchange{{{}, tensor}, {0, 0}, nullptr};
    if (!group_.communicator->exchange(exchange)) return std::nullopt;
    sent = say(Parcel{group_.number, ++group_.sent, bytes, std::move(*header)}, todo);
    if (sent->ok()) {
      unheard_.push_back({group_.sent, bytes, envelope});
      unheard_bytes_ += bytes;
      ++sent_;
    }
  }
  nccl::carry_out(todo);
  return sent;
}

/// What cannot be said breaks the order of all that follows.
Status ParcelSender::say(Message message, Todo& todo) {
  const Status told = ways_.tell(std::move(message));
  if (!told.ok()) todo.push_back([this, why = told.error()] { ways_.fail(why); });
  return told;
}

void ParcelSender::close() {
  std::shared_ptr<nccl::Communicator> communicator;
  std::deque<Unheard> unheard;  // goes after the lock
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
    communicator = std::exchange(group_, {}).communicator;
    unheard = std::exchange(unheard_, {});
  }
  if (communicator) communicator->close();
}

void ParcelSender::heard(const ParcelGroup& news) {
  Todo todo;
  {
    std::lock_guard lock(mutex_);
    if (closed_ || news.group == 0) return;
    const bool current = news.group == group_.number;
    switch (news.state) {
      case ParcelGroup::State::kFormed:
        if (current) formed(&Group::formed_there);
        break;
      case ParcelGroup::State::kCame:
        if (current) came(news.came);
        break;
      case ParcelGroup::State::kBroken:
        if (current)
          drop(unavailable(options_.peer + " lost the NCCL communicator: " + news.reason), true,
               todo);
        if (news.group == settling_) settle(news.came, todo);
        break;
      case ParcelGroup::State::kForm:
      case ParcelGroup::State::kEnd:
        break;  // the receiver's
    }
  }
  nccl::carry_out(todo);
}

/// Either end may be the first.
void ParcelSender::formed(bool Group::*where) {
  if (std::exchange(group_.*where, true) || !group_.up()) return;
  group_.up_since = now();
  logger().info("rows and outputs to {} go by NCCL from now on", options_.peer);
}

void ParcelSender::came(std::uint64_t number) {
  for (; !unheard_.empty() && unheard_.front().number <= number; unheard_.pop_front())
    unheard_bytes_ -= unheard_.front().bytes;
}

/// The receiver has said that no more will come: the rest goes by the bulk lane.
void ParcelSender::settle(std::uint64_t number, Todo& todo) {
  settling_ = 0;
  came(number);
  for (const Unheard& lost : std::exchange(unheard_, {})) {
    const Status again = ways_.otherwise(lost.envelope);
    if (!again.ok()) todo.push_back([this, why = again.error()] { ways_.fail(why); });
    ++resent_;
  }
  unheard_bytes_ = 0;
}

void ParcelSender::form() {
  group_ = {};
  group_.number = ++newest_;
  const nccl::Carrier& carrier = options_.carrier;
  group_.communicator = carrier.watchdog->start(
      {carrier.library, carrier.device, kSenderRank, std::nullopt, events_of(group_.number)});
}

/// What it tells counts as long as it is the group's.
nccl::Communicator::Events ParcelSender::events_of(std::uint32_t number) {
  const auto act = [weak = weak_from_this(), number](const auto& act) {
    const auto current = [number](const auto& self) {
      return !self.closed_ && self.group_.number == number;
    };
    nccl::act_if(weak, &ParcelSender::mutex_, current, act);
  };
  return {
      .id =
          [act, number](const nccl::UniqueId& id) {
            ParcelGroup form{number, ParcelGroup::State::kForm};
            std::memcpy(form.id.data(), id.bytes, form.id.size());
            act([&](ParcelSender& self, Todo& todo) {
              self.group_.announced = true;
              (void)self.say(form, todo);
            });
          },
      .formed = [act] { act([](ParcelSender& self, Todo&) { self.formed(&Group::formed_here); }); },
      .broken =
          [act](const Error& why) {
            act([&](ParcelSender& self, Todo& todo) { self.drop(why, false, todo); });
          },
  };
}

void ParcelSender::drop(const Error& why, bool receiver_knows, Todo& todo) {
  logger().warn("rows and outputs to {} go by the other fabric: {}", options_.peer, why.message);
  if (group_.up() && now() - group_.up_since > limits::kNcclRetryMax) retry_ = options_.retry_min;
  form_after_ = now() + retry_;
  retry_ = std::min<Duration>(2 * retry_, limits::kNcclRetryMax);
  const Group broken = std::exchange(group_, {});
  if (broken.announced) {
    settling_ = broken.number;
    if (!receiver_knows)
      (void)say(ParcelGroup{broken.number, ParcelGroup::State::kEnd, 0, {}, why.message}, todo);
  }
  todo.push_back([communicator = broken.communicator, why] { communicator->break_up(why); });
}

}  // namespace troupe
