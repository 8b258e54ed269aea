#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "actors/base/post.h"
#include "runtime/clock.h"

namespace troupe {

/// What is inside an actor: a machine in its shell. All calls come one after the other.
class Actor {
 public:
  virtual ~Actor() = default;
  /// Both return when the actor wants to be woken, if at all: an earlier time replaces a later one.
  virtual std::optional<TimePoint> on(Mail mail) = 0;
  virtual std::optional<TimePoint> on_wake() = 0;
};

/// Held by whatever still uses an actor's resources; see Host::spawn.
using Life = std::shared_ptr<const void>;

/// Where actors run: CAF in a process (caf_host.h), virtual time in the simulation.
class Host {
 public:
  explicit Host(Post& post) : post_(post) {}
  virtual ~Host() = default;
  Host(const Host&) = delete;

  virtual TimePoint now() const = 0;
  Post& post() { return post_; }

  /// Starts an actor at that address; its first turn is a wake. `make` gets its life: `ended` is
  /// delivered once the actor has ended and nobody holds a copy of the life any more.
  using Make = std::function<std::unique_ptr<Actor>(const Life&)>;
  virtual void spawn(const Address& address, const Make& make, Mail ended) = 0;
  /// Nothing is delivered to it any more. It takes what lies in its mailbox, and ends.
  virtual void end(const Address& address) = 0;

  /// Whether machines prove their invariants after every turn: in debug builds and in the
  /// simulation.
  virtual bool checks_invariants() const = 0;
  /// An invariant of that actor's machine does not hold.
  virtual void broken(const Address& actor, const std::string& invariant) = 0;

 private:
  Post& post_;
};

/// Has `ended` delivered when the last copy goes.
Life make_life(Post& post, Mail ended);

/// The one timer of an actor. An earlier time replaces a later one.
class Alarm {
 public:
  /// The number of the ring to arrange for that time; none if an earlier one is arranged.
  std::optional<std::uint64_t> set(TimePoint time) {
    if (time_ && *time_ <= time) return std::nullopt;
    time_ = time;
    return ++number_;
  }
  /// Whether that ring counts; then none is arranged any more.
  bool rings(std::uint64_t number) {
    if (!time_ || number != number_) return false;
    time_.reset();
    return true;
  }

 private:
  std::optional<TimePoint> time_;
  std::uint64_t number_ = 0;
};

}  // namespace troupe
