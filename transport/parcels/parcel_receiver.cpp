#include "transport/parcels/parcel_receiver.h"

#include <cstring>
#include <utility>

#include "runtime/limits.h"
#include "transport/codec.h"

namespace troupe {
namespace {

constexpr TensorRank kReceiverRank{1, 2};

/// Counts its bytes as held until it goes.
class Held {
 public:
  Held(std::shared_ptr<std::atomic<std::size_t>> account, std::size_t bytes)
      : account_(std::move(account)), bytes_(bytes) {
    *account_ += bytes_;
  }
  ~Held() { *account_ -= bytes_; }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

 private:
  const std::shared_ptr<std::atomic<std::size_t>> account_;
  const std::size_t bytes_;
};

}  // namespace

void ParcelReceiver::say(const ParcelGroup& news, Todo& todo) {
  if (const Status told = ways_.tell(news); !told.ok())
    todo.push_back([this, why = told.error()] { ways_.fail(why); });
}

void ParcelReceiver::close() {
  std::shared_ptr<nccl::Communicator> communicator;
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
    communicator = std::exchange(group_, {}).communicator;
  }
  if (communicator) communicator->close();
}

void ParcelReceiver::heard(const ParcelGroup& news) {
  Todo todo;
  {
    std::lock_guard lock(mutex_);
    if (closed_) return;
    if (news.state == ParcelGroup::State::kForm && news.group > newest_) {
      nccl::UniqueId id;
      std::memcpy(id.bytes, news.id.data(), news.id.size());
      form(news.group, id, todo);
    } else if (news.state == ParcelGroup::State::kEnd && news.group == group_.number &&
               news.group != 0) {
      drop(unavailable("the sender ends it: " + news.reason), todo);
    }
  }
  nccl::carry_out(todo);
}

void ParcelReceiver::form(std::uint32_t number, const nccl::UniqueId& id, Todo& todo) {
  if (group_.communicator) todo.push_back([old = std::move(group_.communicator)] { old->close(); });
  newest_ = number;
  group_ = {};
  group_.number = number;
  const nccl::Carrier& carrier = options_.carrier;
  group_.communicator = carrier.watchdog->start(
      {carrier.library, carrier.device, kReceiverRank, id, events_of(number)});
}

nccl::Communicator::Events ParcelReceiver::events_of(std::uint32_t number) {
  const auto act = [weak = weak_from_this(), number](const auto& act) {
    const auto current = [number](const auto& self) {
      return !self.closed_ && self.group_.number == number;
    };
    nccl::act_if(weak, &ParcelReceiver::mutex_, current, act);
  };
  return {
      .id = nullptr,  // the sender's
      .formed =
          [act, number] {
            act([&](ParcelReceiver& self, Todo& todo) {
              self.say({number, ParcelGroup::State::kFormed}, todo);
            });
          },
      .broken =
          [act](const Error& why) {
            act([&](ParcelReceiver& self, Todo& todo) { self.drop(why, todo); });
          },
  };
}

/// What has come by now counts, and nothing after it: the sender sends the rest again.
void ParcelReceiver::drop(const Error& why, Todo& todo) {
  const Group broken = std::exchange(group_, {});
  say({broken.number, ParcelGroup::State::kBroken, broken.came, {}, why.message}, todo);
  todo.push_back([communicator = broken.communicator, why] { communicator->break_up(why); });
}

/// Parcels of a communicator that is no more are sent again by other ways.
void ParcelReceiver::arrived(const Parcel& parcel) {
  Todo todo;
  {
    std::lock_guard lock(mutex_);
    if (closed_ || parcel.group == 0 || parcel.group != group_.number) return;
    if (parcel.number != group_.announced + 1 ||
        group_.headers.size() >= limits::kParcelsUnheardMax) {
      drop(internal_error("a parcel came out of its order"), todo);
    } else if (*held_ + parcel.bytes > options_.held_bytes_max) {
      drop(resource_exhausted("too much that came by NCCL is in use at the receiver"), todo);
    } else {
      ++group_.announced;
      group_.headers.push_back(parcel.header);
      nccl::Communicator::Exchange exchange{
          {{}, {}},
          {parcel.bytes, 0},
          [weak = weak_from_this(), group = group_.number,
           held = std::make_shared<Held>(held_, parcel.bytes)](Result<std::vector<Payload>> parts) {
            const auto self = weak.lock();
            if (!self || !parts.ok()) return;  // the communicator says that it is broken
            Payload tensor = std::move((*parts)[0]);
            using Both = std::pair<std::shared_ptr<const void>, std::shared_ptr<Held>>;
            tensor.owner = std::make_shared<Both>(std::move(tensor.owner), held);
            self->came(group, std::move(tensor));
          }};
      (void)group_.communicator->exchange(exchange);
    }
  }
  nccl::carry_out(todo);
}

void ParcelReceiver::came(std::uint32_t group, Payload tensor) {
  Todo todo;
  std::vector<std::byte> header;
  {
    std::lock_guard lock(mutex_);
    if (closed_ || group_.number != group) return;
    header = std::move(group_.headers.front());
    group_.headers.pop_front();
    ++group_.came;
    group_.untold_bytes += tensor.bytes.size();
    if (group_.came - group_.told >= limits::kParcelsTell ||
        group_.untold_bytes >= limits::kParcelBytesTell) {
      group_.told = group_.came;
      group_.untold_bytes = 0;
      say({group, ParcelGroup::State::kCame, group_.came}, todo);
    }
  }
  nccl::carry_out(todo);
  auto envelope = transport::decode(header, std::move(tensor));
  if (!envelope.ok()) return ways_.fail(envelope.error());
  ways_.deliver(std::move(*envelope));
}

}  // namespace troupe
