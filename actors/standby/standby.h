#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "actors/standby/standby_effects.h"
#include "runtime/engine_options.h"
#include "runtime/standby_limits.h"

namespace troupe {

/// A machine that follows a head, keeps what it has accepted, and takes its place when it is gone
/// and more than half of the workers grant it. README.md of this folder has the protocol. A machine
/// (see actors/base/shell.h).
///
///     follows ── the head is silent ──► asks ── pledges of more than half ──► rules
///        ▲ ◄─────── the head is back ────┘
///
/// It asks only with a copy that is complete. Whenever it finds the head (again) it gives up what
/// it could take over with before, and begins from nothing: so the head may do without it.
class Standby {
 public:
  using Inbox = StandbyInbox;
  using Effects = StandbyEffects;

  struct Options {
    std::string version;
    std::string checkpoint_hash;
    EngineOptions engine;
    std::string address;             ///< "host:port" where it listens
    FollowState earlier;             ///< of an earlier process; head_address is always there
    std::uint64_t journal_file = 1;  ///< the next one's number
    std::function<std::uint64_t()> random;
    /// A term above those; see first_incarnation().
    std::function<Incarnation(Incarnation)> next_term;
  };
  explicit Standby(Options options) : options_(std::move(options)), known_(options_.earlier) {}

  // From the head.
  void on(const Greeting& greeting, const Envelope& envelope, TimePoint now, Effects& effects);
  void on(const Refused& refused, const Envelope& envelope, TimePoint now, Effects& effects);
  void on(const Succession& news, const Envelope& envelope, TimePoint now, Effects& effects);
  void on(const KnownLines& lines, const Envelope& envelope, TimePoint now, Effects& effects);
  void on(const JournalCopy& copy, const Envelope& envelope, TimePoint now, Effects& effects);
  void on(const Followed& beat, const Envelope& envelope, TimePoint now, Effects& effects);
  void on(const Stop& stop, const Envelope& envelope, TimePoint now, Effects& effects);
  void on(const Standing& standing, const Envelope& envelope, TimePoint now, Effects& effects);
  void on(const Undeliverable&, const Envelope&, TimePoint, Effects&) {}
  // From those who seek a head here.
  void on(const Pledge& pledge, const Envelope& envelope, TimePoint now, Effects& effects);
  void on(const HeadReturns& head, const Envelope& envelope, TimePoint now, Effects& effects);
  // From this process.
  void on(HeadUp, TimePoint now, Effects& effects);
  void on(HeadDown down, TimePoint now, Effects& effects);
  void on(SessionUp up, TimePoint now, Effects& effects);
  void on(SessionDown down, TimePoint now, Effects& effects);
  void on(JournalKept kept, TimePoint now, Effects& effects);
  void on(JournalFailed failed, TimePoint now, Effects& effects);

  void on_wake(TimePoint now, Effects& effects);
  void end_turn(TimePoint now, Effects& effects);
  std::string violation() const;

  enum class Role : std::uint8_t { kFollows, kAsks, kRules, kEnded };
  Role role() const { return role_; }
  const FollowState& known() const { return known_; }
  /// One sentence: what it does, or what it lacks.
  std::string message() const;

 private:
  enum class Link : std::uint8_t { kStarting, kIdle, kConnecting, kGreeting, kUp };
  struct Session {
    TimePoint opened{};
    bool told = false;  ///< what this is
    bool closing = false;
    std::optional<WorkerLife> life = {};  ///< that it has spoken for
  };
  bool from_head(const Envelope& envelope, TimePoint now);
  bool may_ask() const { return known_.complete && !known_.members.empty(); }
  void connect(TimePoint now, Effects& effects);
  void lose(const std::string& why, Duration pause, TimePoint now, Effects& effects);
  void beat(TimePoint now, Effects& effects);
  void give_up_copy(Effects& effects);
  void ask(Effects& effects);
  void end(int code, const std::string& reason, Effects& effects);
  void say(std::string text, Effects& effects);
  Standing standing() const;
  void tell_sessions(bool again, Effects& effects);

  const Options options_;
  FollowState known_;
  Role role_ = Role::kFollows;
  Link link_ = Link::kStarting;
  TimePoint link_deadline_{};  ///< of its state; idle: the next try
  Duration backoff_ = limits::kSeekBackoffMin;
  TimePoint heard_{};  ///< of the head, last
  TimePoint next_beat_{};
  std::uint64_t beats_ = 0;
  /// Of the journal.
  struct Copy {
    std::uint64_t next_file = 1;   ///< here
    std::uint64_t first_file = 0;  ///< of this session with the head
    std::uint64_t file = 0;        ///< that is being written; 0: none has begun
    std::uint64_t mark = 0;        ///< what has come with it is on the disk
  };
  Copy copy_{.next_file = options_.journal_file};
  std::map<std::uint32_t, Session> sessions_;
  std::set<WorkerLife> granted_;
  std::string said_;
};

}  // namespace troupe
