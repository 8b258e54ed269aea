#include "transport/collectives/nccl_collective.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/log.h"

namespace troupe {
namespace {

std::vector<std::uint64_t> lengths_of(const std::vector<Payload>& parts) {
  std::vector<std::uint64_t> lengths;
  for (const Payload& part : parts) lengths.push_back(part.bytes.size());
  return lengths;
}

static_assert(PartsExchange::kAny == RankReady::kAny, "lengths go on as they are");

/// The oldest goes if there are too many.
template <class Map>
void bound(Map& map) {
  if (map.size() > limits::kStepsInFlightMax) map.erase(map.begin());
}

}  // namespace

NcclCollective::NcclCollective(Options options, Send send)
    : options_(std::move(options)),
      send_(std::move(send)),
      lane_(options_.rank, options_.replica,
            [this](std::uint32_t rank, RankPart part) { send_(rank, std::move(part)); }),
      retry_(options_.retry_min) {}

std::shared_ptr<NcclCollective> NcclCollective::make(Options options, Send send) {
  return std::shared_ptr<NcclCollective>(new NcclCollective(std::move(options), std::move(send)));
}

NcclCollective::~NcclCollective() { close(); }

void NcclCollective::say(std::uint32_t rank, Message message, Todo& todo) {
  todo.push_back([this, rank, message = std::move(message)] { send_(rank, message); });
}

void NcclCollective::say_all(const Message& message, Todo& todo) {
  for (std::uint32_t rank = 0; rank < options_.rank.size; ++rank)
    if (rank != options_.rank.rank) say(rank, message, todo);
}

std::uint64_t NcclCollective::carried() const {
  std::lock_guard lock(mutex_);
  return carried_;
}

std::uint64_t NcclCollective::carried_by_messages() const {
  std::lock_guard lock(mutex_);
  return by_messages_;
}

std::size_t NcclCollective::pending() const {
  std::lock_guard lock(mutex_);
  return pending_.size();
}

// --- The shard ----------------------------------------------------------------------------------

void NcclCollective::start(PartsExchange exchange, Done done) {
  Todo todo;
  {
    std::lock_guard lock(mutex_);
    if (closed_ || ended_.contains(exchange.step)) return;
    const StepId step = exchange.step;
    RankReady own{options_.replica,
                  step,
                  exchange.index,
                  lengths_of(exchange.to),
                  {exchange.bytes.begin(), exchange.bytes.end()}};
    pending_[step] = Pending{std::move(exchange), std::move(done)};
    bound(pending_);
    if (leads() && group_.number == 0 && now() >= form_after_)
      form(newest_group_ + 1, std::nullopt, todo);
    if (leads())
      ready(0, std::move(own), todo);
    else
      say(0, std::move(own), todo);
  }
  nccl::carry_out(todo);
}

/// What it has told rank 0 that it would send stays, in case that its turn comes.
bool NcclCollective::forget(StepId step) {
  Todo todo;
  const bool waited = forget(step, todo);
  nccl::carry_out(todo);
  return waited;
}

bool NcclCollective::forget(StepId step, Todo& todo) {
  Done waited;  // goes after the lock
  std::lock_guard lock(mutex_);
  (void)lane_.forget(step);
  ended_.insert(step);
  if (ended_.size() > 2 * limits::kStepsInFlightMax) ended_.erase(*ended_.begin());
  if (const auto come = arrivals_.extract(step))
    for (std::uint32_t rank = 1; rank < options_.rank.size; ++rank)
      if (const auto& ready = come.mapped().ranks[rank]) refuse(rank, *ready, todo);
  if (const auto it = pending_.find(step); it != pending_.end()) {
    waited = std::exchange(it->second.done, nullptr);
    if (leads()) pending_.erase(step);  // it gives the turns
  } else if (const auto under_way = carried_out_.find(step); under_way != carried_out_.end()) {
    waited = std::move(under_way->second);
    carried_out_.erase(step);
  }
  return waited != nullptr;
}

void NcclCollective::close() {
  std::map<StepId, Pending> pending;  // go after the lock
  std::map<StepId, Done> carried_out;
  std::shared_ptr<nccl::Communicator> communicator;
  lane_.close();
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
    pending = std::exchange(pending_, {});
    carried_out = std::exchange(carried_out_, {});
    arrivals_ = {};
    communicator = std::exchange(group_, {}).communicator;
  }
  if (communicator) communicator->close();
}

void NcclCollective::lost(const std::string& why) {
  Todo todo;
  {
    std::lock_guard lock(mutex_);
    if (closed_ || group_.number == 0) return;
    drop_group(group_.number, unavailable(why), true, todo);
  }
  nccl::carry_out(todo);
}

void NcclCollective::arrived(std::uint32_t from, const Message& message) {
  if (from >= options_.rank.size || from == options_.rank.rank) return;
  if (const auto* part = std::get_if<RankPart>(&message)) return lane_.arrived(from, *part);
  Todo todo;
  {
    std::lock_guard lock(mutex_);
    if (closed_) return;
    if (const auto* came = std::get_if<RankReady>(&message)) {
      if (leads() && came->replica == options_.replica) ready(from, *came, todo);
    } else if (const auto* turn = std::get_if<RankGo>(&message)) {
      if (from == 0 && turn->replica == options_.replica) go(*turn, todo);
    } else if (const auto* news = std::get_if<RankGroup>(&message)) {
      if (news->replica == options_.replica) heard(from, *news, todo);
    }
  }
  nccl::carry_out(todo);
}

// --- Turns --------------------------------------------------------------------------------------

void NcclCollective::ready(std::uint32_t from, RankReady came, Todo& todo) {
  const std::uint32_t size = options_.rank.size;
  if (came.to.size() != size || came.from.size() != size) return;
  if (ended_.contains(came.step)) {
    if (from != 0) refuse(from, came, todo);
    return;
  }
  const StepId step = came.step;
  Arrivals& arrivals = arrivals_[step];
  arrivals.ranks.resize(size);
  arrivals.ranks[from] = std::move(came);
  if (!std::ranges::all_of(arrivals.ranks, [](const auto& rank) { return rank.has_value(); }))
    return bound(arrivals_);
  Arrivals all = std::move(arrivals);
  arrivals_.erase(step);
  deal(step, std::move(all), todo);
}

/// It has the parts of an exchange at hand that never has its turn.
void NcclCollective::refuse(std::uint32_t rank, const RankReady& ready, Todo& todo) {
  RankGo turn;
  turn.replica = options_.replica;
  turn.step = ready.step;
  turn.exchange = ready.exchange;
  turn.given_up = true;
  say(rank, std::move(turn), todo);
}

/// Whether all are at the same exchange, and what one sends is what the other awaits.
bool NcclCollective::fits(const Arrivals& arrivals) const {
  for (std::uint32_t a = 0; a < options_.rank.size; ++a) {
    const RankReady& sender = *arrivals.ranks[a];
    if (sender.exchange != arrivals.ranks[0]->exchange) return false;
    for (std::uint32_t b = 0; b < options_.rank.size; ++b) {
      const std::uint64_t awaited = arrivals.ranks[b]->from[a];
      if (sender.to[b] > limits::kBulkPayloadBytesMax) return false;
      if (awaited == RankReady::kAny ? sender.to[b] == 0 : sender.to[b] != awaited) return false;
    }
  }
  return true;
}

void NcclCollective::deal(StepId step, Arrivals arrivals, Todo& todo) {
  RankGo turn;
  turn.replica = options_.replica;
  turn.step = step;
  turn.fits = fits(arrivals);
  turn.group = group_.up && turn.fits ? group_.number : 0;
  if (turn.group != 0) turn.order = group_.order + 1;
  for (std::uint32_t rank = options_.rank.size; rank-- > 0;) {
    turn.exchange = arrivals.ranks[rank]->exchange;
    turn.from.clear();
    for (const auto& sender : arrivals.ranks) turn.from.push_back(sender->to[rank]);
    if (rank > 0)
      say(rank, turn, todo);
    else
      go(turn, todo);
  }
}

/// Messages may overtake each other between threads; turns are taken in their order.
void NcclCollective::go(RankGo turn, Todo& todo) {
  if (turn.given_up) return give_up(turn, todo);
  if (turn.from.size() != options_.rank.size) return;
  if (turn.group == 0) return carry_out(turn, todo);
  if (turn.group != group_.number) {
    // It is broken here, and the others have been told; so whoever waits hears what they do.
    if (const auto it = pending_.find(turn.step); it != pending_.end()) {
      if (it->second.done)
        todo.push_back([done = std::move(it->second.done)] {
          done(unavailable("The NCCL communicator of an exchange is no more."));
        });
      pending_.erase(turn.step);
    }
    return;
  }
  if (turn.order > group_.order + limits::kExchangesAheadMax) return;
  group_.early.emplace(turn.order, std::move(turn));
  while (group_.number != 0 && !group_.early.empty() &&
         group_.early.begin()->first == group_.order + 1) {
    const RankGo next = std::move(group_.early.begin()->second);
    group_.early.erase(group_.early.begin());
    group_.order = next.order;
    carry_out(next, todo);
  }
}

void NcclCollective::give_up(const RankGo& turn, Todo& todo) {
  const auto it = pending_.find(turn.step);
  if (it == pending_.end() || it->second.exchange.index != turn.exchange) return;
  todo.push_back([pending = std::make_shared<Pending>(std::move(it->second))] {
    if (pending->done) pending->done(unavailable("Tensor-parallel rank 0 has given it up."));
  });
  pending_.erase(it);
}

void NcclCollective::carry_out(const RankGo& turn, Todo& todo) {
  const auto it = pending_.find(turn.step);
  if (it == pending_.end() || it->second.exchange.index != turn.exchange) {
    if (turn.group != 0)
      drop_group(turn.group, internal_error("An exchange had its turn that is not known here."),
                 true, todo);
    return;
  }
  Pending pending = std::move(it->second);
  pending_.erase(turn.step);
  if (!turn.fits) {
    if (pending.done)
      todo.push_back([done = std::move(pending.done)] {
        done(corrupt("Tensor-parallel ranks do not agree how long the parts of a step are."));
      });
    return;
  }
  if (turn.group == 0) {
    if (!pending.done) return;  // the others give the step up as well
    ++by_messages_;
    carried_out_[turn.step] = std::move(pending.done);
    todo.push_back([this, exchange = std::make_shared<PartsExchange>(std::move(pending.exchange))] {
      const StepId step = exchange->step;
      lane_.start(std::move(*exchange), hear(step));
    });
    return;
  }
  if (!put(turn, pending))
    todo.push_back([done = std::move(pending.done)] {
      if (done) done(unavailable("The NCCL communicator of an exchange is no more."));
    });
}

/// Tells whoever waits for the step, unless it is forgotten by then.
Collective::Done NcclCollective::hear(StepId step) {
  return [weak = weak_from_this(), step](Result<std::vector<Payload>> came) {
    const auto self = weak.lock();
    if (!self) return;
    Done done;
    {
      std::lock_guard lock(self->mutex_);
      const auto it = self->carried_out_.find(step);
      if (it == self->carried_out_.end()) return;
      done = std::move(it->second);
      self->carried_out_.erase(it);
    }
    done(std::move(came));
  };
}

/// Into the communicator. False: it is broken.
bool NcclCollective::put(const RankGo& turn, Pending& pending) {
  nccl::Communicator::Exchange exchange;
  exchange.to = std::move(pending.exchange.to);
  exchange.from.assign(turn.from.begin(), turn.from.end());
  const StepId step = turn.step;
  exchange.done = hear(step);
  if (!group_.communicator->exchange(exchange)) return false;
  ++carried_;
  if (pending.done) carried_out_[step] = std::move(pending.done);
  return true;
}

// --- The communicator ---------------------------------------------------------------------------

/// What it tells counts as long as it is the group's.
nccl::Communicator::Events NcclCollective::events_of(std::uint32_t number) {
  using Act = std::function<void(NcclCollective&, Todo&)>;
  const auto act = [weak = weak_from_this(), number](const Act& act) {
    const auto current = [number](const auto& self) {
      return !self.closed_ && self.group_.number == number;
    };
    nccl::act_if(weak, &NcclCollective::mutex_, current, act);
  };
  const auto news = [replica = options_.replica, number](RankGroup::State state) {
    return RankGroup{replica, number, state};
  };
  return {
      .id =
          [act, news](const nccl::UniqueId& id) {
            RankGroup form = news(RankGroup::State::kForm);
            std::memcpy(form.id.data(), id.bytes, form.id.size());
            act([&](NcclCollective& self, Todo& todo) { self.say_all(form, todo); });
          },
      .formed =
          [act, news, number] {
            act([&](NcclCollective& self, Todo& todo) {
              if (self.leads()) return self.formed(0, number);
              self.say(0, news(RankGroup::State::kFormed), todo);
            });
          },
      .broken =
          [act, number](const Error& why) {
            act([&](NcclCollective& self, Todo& todo) {
              self.drop_group(number, why, true, todo);
            });
          },
  };
}

void NcclCollective::form(std::uint32_t number, std::optional<nccl::UniqueId> id, Todo& todo) {
  if (group_.communicator) todo.push_back([old = std::move(group_.communicator)] { old->close(); });
  newest_group_ = number;
  group_ = {};
  group_.number = number;
  group_.formed.assign(options_.rank.size, false);
  const nccl::Carrier& carrier = options_.carrier;
  group_.communicator = carrier.watchdog->start(
      {carrier.library, carrier.device, options_.rank, id, events_of(number)});
}

void NcclCollective::formed(std::uint32_t from, std::uint32_t number) {
  if (!leads() || number != group_.number) return;
  group_.formed[from] = true;
  if (group_.up || !std::ranges::all_of(group_.formed, [](bool formed) { return formed; })) return;
  group_.up = true;
  group_.up_since = now();
  logger().info("the tensor-parallel ranks of replica {} exchange by NCCL from now on",
                options_.replica);
}

void NcclCollective::heard(std::uint32_t from, const RankGroup& news, Todo& todo) {
  switch (news.state) {
    case RankGroup::State::kForm: {
      if (from != 0 || news.group <= newest_group_) return;
      nccl::UniqueId id;
      std::memcpy(id.bytes, news.id.data(), news.id.size());
      return form(news.group, id, todo);
    }
    case RankGroup::State::kFormed:
      return formed(from, news.group);
    case RankGroup::State::kBroken:
      if (news.group == group_.number)
        drop_group(news.group,
                   unavailable("Tensor-parallel rank " + std::to_string(from) +
                               " lost the NCCL communicator: " + news.reason),
                   false, todo);
      else if (!leads())  // it may come before what it is about
        newest_group_ = std::max(newest_group_, news.group);
  }
}

/// Whoever waits for it hears why, and so do the other ranks if `tell` is set.
void NcclCollective::drop_group(std::uint32_t number, const Error& why, bool tell, Todo& todo) {
  logger().warn("the tensor-parallel ranks of replica {} exchange by messages: {}",
                options_.replica, why.message);
  if (group_.up && now() - group_.up_since > limits::kNcclRetryMax) retry_ = options_.retry_min;
  form_after_ = now() + retry_;
  retry_ = std::min<Duration>(2 * retry_, limits::kNcclRetryMax);
  if (tell)
    say_all(RankGroup{options_.replica, number, RankGroup::State::kBroken, {}, why.message}, todo);
  todo.push_back([broken = std::exchange(group_, {}).communicator, why] { broken->break_up(why); });
}

}  // namespace troupe
