#pragma once

#include <string>
#include <utility>

#include "actors/base/effects.h"
#include "actors/base/host.h"

namespace troupe {

/// For machines without effects of their own.
struct NoHands {};

/// A machine decides, and does nothing itself: a message and `now` go in, effects come out.
///
///     class Machine {
///       using Inbox = ...;                   // of actors/interfaces.h
///       using Effects = troupe::Effects<...>;
///       void on(const T& wire, const Envelope& envelope, TimePoint now, Effects& effects);
///       void on(T local, TimePoint now, Effects& effects);      // for each T of the inbox
///       void on_wake(TimePoint now, Effects& effects);   // no later than the time asked for
///       void end_turn(TimePoint now, Effects& effects);  // after each of these
///       std::string violation() const;  // the first invariant that does not hold; empty: all do
///     };
///
/// These functions run one turn of it without carrying anything out: for the shell, and for tests.

/// What the inbox does not take is refused.
template <class Machine>
void turn(Machine& machine, const Envelope& envelope, TimePoint now,
          typename Machine::Effects& effects) {
  std::visit(
      [&]<class T>(const T& message) {
        if constexpr (TakesWire<typename Machine::Inbox, T>)
          machine.on(message, envelope, now, effects);
        else if constexpr (!std::same_as<T, Undeliverable>)
          effects.refuse(envelope, "That actor does not take this message.");
      },
      *envelope.message);
  machine.end_turn(now, effects);
}

template <class Machine, class T>
  requires TakesLocal<typename Machine::Inbox, T>
void turn(Machine& machine, T message, TimePoint now, typename Machine::Effects& effects) {
  machine.on(std::move(message), now, effects);
  machine.end_turn(now, effects);
}

template <class Machine>
void wake(Machine& machine, TimePoint now, typename Machine::Effects& effects) {
  machine.on_wake(now, effects);
  machine.end_turn(now, effects);
}

/// The one turn of every actor: message in, invariants, effects in their order. `Hands` has
/// `carry_out(Effect&&, const Machine&)` for each kind of effect that only this machine has, and
/// `turned(const Machine&)` if it wants to look at the machine after every turn.
///
///     mailbox ─► Shell ─► Machine::on ─► end_turn ─► violation ─► effects ─┬─► Post
///                  ▲                                                       └─► Hands ─► jobs,
///                  └──────────────── what they found, as messages ◄──────────────────── lanes
template <class Machine, class Hands = NoHands>
class Shell final : public Actor {
 public:
  using Inbox = typename Machine::Inbox;
  using Effects = typename Machine::Effects;

  Shell(Host& host, const Address& self, Machine machine, Hands hands = {})
      : host_(host), self_(self), hands_(std::move(hands)), machine_(std::move(machine)) {}

  std::optional<TimePoint> on(Mail mail) override {
    Effects effects;
    const TimePoint now = host_.now();
    if (mail.local) {
      Inbox::local::open(*mail.local, [&](auto& message) {
        turn(machine_, std::move(message), now, effects);
      });
    } else {
      turn(machine_, mail.envelope, now, effects);
    }
    return finish(effects);
  }
  std::optional<TimePoint> on_wake() override {
    Effects effects;
    wake(machine_, host_.now(), effects);
    return finish(effects);
  }

  const Machine& machine() const { return machine_; }

 private:
  std::optional<TimePoint> finish(Effects& effects) {
    if (host_.checks_invariants())
      if (const std::string invariant = machine_.violation(); !invariant.empty())
        host_.broken(self_, invariant);
    for (auto& effect : effects.take())
      std::visit([this](auto& e) { carry_out(std::move(e)); }, effect);
    if constexpr (requires { hands_.turned(std::as_const(machine_)); })
      hands_.turned(std::as_const(machine_));
    return effects.wake();
  }
  void carry_out(Send&& send) {
    host_.post().send(Envelope{send.from.value_or(self_), send.to, std::move(send.message)});
  }
  void carry_out(Tell&& tell) {
    host_.post().tell(Mail(self_, tell.to, std::move(tell.message)));
  }
  template <class Own>
  void carry_out(Own&& effect) {
    hands_.carry_out(std::move(effect), std::as_const(machine_));
  }

  Host& host_;
  const Address self_;
  Hands hands_;
  Machine machine_;
};

}  // namespace troupe
