#include "actors/standby/standby.h"

#include <algorithm>
#include <utility>

namespace troupe {

// --- The head -----------------------------------------------------------------------------------

void Standby::connect(TimePoint now, Effects& effects) {
  effects.add(SeekHead{});
  link_ = Link::kConnecting;
  // The lane has the same deadline and says why; this one is for when it says nothing.
  link_deadline_ = now + 2 * limits::kHandshakeDeadline;
}

void Standby::lose(const std::string& why, Duration pause, TimePoint now, Effects& effects) {
  if (link_ != Link::kIdle)
    say("The head at " + known_.head_address + " is not followed: " + why, effects);
  link_ = Link::kIdle;
  link_deadline_ = now + pause;
}

void Standby::on(HeadUp, TimePoint now, Effects&) {
  if (link_ != Link::kConnecting) return;
  link_ = Link::kGreeting;
  link_deadline_ = now + limits::kHandshakeDeadline;
}

void Standby::on(HeadDown down, TimePoint now, Effects& effects) {
  if (link_ == Link::kIdle || role_ == Role::kRules || role_ == Role::kEnded) return;
  if (down.foreign && !may_ask()) return end(1, down.reason, effects);
  lose(down.reason, backoff_, now, effects);
  backoff_ = std::min<Duration>(backoff_ * 2, limits::kSeekBackoffMax / 4);
}

/// What comes of a session that is over, or of others, does not count.
bool Standby::from_head(const Envelope& envelope, TimePoint now) {
  if (envelope.from.node != kHeadNode || envelope.from.actor.kind == ActorKind::kClient)
    return false;
  if (link_ != Link::kUp || envelope.from.incarnation != known_.head) return false;
  heard_ = now;
  return role_ == Role::kFollows;
}

void Standby::on(const Greeting& greeting, const Envelope& envelope, TimePoint now,
                 Effects& effects) {
  if (link_ != Link::kGreeting || envelope.from.actor.kind == ActorKind::kClient) return;
  if (role_ != Role::kFollows && role_ != Role::kAsks) return;
  const bool other = !known_.cluster_id.empty() && greeting.cluster_id != known_.cluster_id;
  if (other && may_ask()) {
    effects.add(LeaveHead{});
    return lose("another cluster's head is there.", limits::kSeekBackoffMax, now, effects);
  }
  if (other)
    return end(1,
               "The head at " + known_.head_address +
                   " is another cluster's than the one that "
                   "this standby followed; give it a state folder of its own.",
               effects);
  if (envelope.from.incarnation < known_.head) {
    effects.add(LeaveHead{});
    return lose("an older life of it answers.", limits::kSeekBackoffMax, now, effects);
  }
  const std::uint64_t before = std::exchange(known_.standby, options_.random() | 1);
  known_.cluster_id = greeting.cluster_id;
  known_.head = envelope.from.incarnation;
  known_.succession = 0;
  give_up_copy(effects);
  copy_.first_file = copy_.next_file;
  copy_.file = copy_.mark = 0;
  link_ = Link::kUp;
  heard_ = next_beat_ = now;
  backoff_ = limits::kSeekBackoffMin;
  effects.add(
      ToHead{message_of(Follow{kProtocol, options_.version, options_.checkpoint_hash,
                               options_.engine, options_.address, known_.standby, before})});
}

/// From now on, on the disk too, it does not take over.
void Standby::give_up_copy(Effects& effects) {
  known_.complete = false;
  known_.members.clear();
  effects.add(KeepFollowing{known_});
  granted_.clear();
  role_ = Role::kFollows;
  tell_sessions(true, effects);
}

void Standby::on(const Refused& refused, const Envelope& envelope, TimePoint now,
                 Effects& effects) {
  if (!from_head(envelope, now)) return;
  if (!passing(refused.code)) return end(1, refused.reason, effects);
  effects.add(LeaveHead{});
  lose(refused.reason, limits::kSeekBackoffMax, now, effects);
}

void Standby::on(const Succession& news, const Envelope& envelope, TimePoint now,
                 Effects& effects) {
  if (!from_head(envelope, now) || news.number <= known_.succession) return;
  const bool completes = news.complete && !known_.complete;
  known_.succession = news.number;
  known_.next_node = news.next_node;
  known_.complete = news.complete;
  known_.members = news.members;
  effects.add(KeepFollowing{known_});
  if (completes)
    say("This standby has all that the head at " + known_.head_address + " has accepted.", effects);
  beat(now, effects);
}

void Standby::on(const KnownLines& lines, const Envelope& envelope, TimePoint now,
                 Effects& effects) {
  if (from_head(envelope, now)) effects.add(KeepKnown{lines});
}

void Standby::on(const JournalCopy& copy, const Envelope& envelope, TimePoint now,
                 Effects& effects) {
  if (!from_head(envelope, now)) return;
  if (copy.begins) copy_.file = copy_.next_file++;
  if (copy_.file == 0) return;  // of a file whose beginning is not here
  KeepRecords records;
  records.file = copy_.file;
  records.mark = copy.mark;
  records.begins = copy.begins;
  records.tells = copy.tells;
  records.completes = copy.completes;
  records.records = copy.records;
  effects.add(KeepCopy{std::move(records)});
}

void Standby::on(const Followed&, const Envelope& envelope, TimePoint now, Effects&) {
  (void)from_head(envelope, now);
}

void Standby::on(const Stop& stop, const Envelope& envelope, TimePoint now, Effects& effects) {
  if (!from_head(envelope, now)) return;
  give_up_copy(effects);
  end(0, "The head stops: " + stop.reason, effects);
}

void Standby::on(const Standing& standing, const Envelope& envelope, TimePoint now,
                 Effects& effects) {
  if (link_ != Link::kGreeting || envelope.from.actor.kind == ActorKind::kClient) return;
  effects.add(LeaveHead{});
  lose(standing.reason, limits::kSeekBackoffMax, now, effects);
}

void Standby::on(JournalKept kept, TimePoint now, Effects& effects) {
  if (copy_.first_file == 0 || kept.file < copy_.first_file || kept.mark <= copy_.mark) return;
  copy_.mark = kept.mark;
  if (link_ == Link::kUp) beat(now, effects);
}

void Standby::on(JournalFailed failed, TimePoint now, Effects& effects) {
  if (link_ != Link::kUp || failed.file < copy_.first_file) return;
  effects.add(LeaveHead{});
  lose("its journal cannot be written here: " + failed.reason, limits::kJournalRetry, now, effects);
}

void Standby::beat(TimePoint now, Effects& effects) {
  effects.add(ToHead{message_of(Followed{++beats_, known_.succession, copy_.mark})});
  next_beat_ = now + limits::kRenewEvery;
}

// --- Those who seek a head here -----------------------------------------------------------------

Standing Standby::standing() const {
  return {known_.cluster_id, known_.standby, role_ == Role::kAsks ? known_.term : Incarnation{},
          message()};
}

std::string Standby::message() const {
  const std::string head = "the head at " + known_.head_address;
  if (link_ == Link::kUp)
    return known_.complete
               ? "This is a standby; " + head + " lives."
               : "This is a standby, which is being told what " + head + " has accepted.";
  if (!may_ask())
    return "This is a standby, which cannot take over: " + head +
           " is gone, and it was not told all that that has accepted" +
           (known_.complete ? ", or there were no workers." : ".");
  return "This is a standby; " + head + " is gone, and " + std::to_string(granted_.size()) +
         " of " + std::to_string(known_.members.size()) +
         " workers grant that it takes over: it needs more than half.";
}

/// Nothing is said to whoever may soon be asked.
void Standby::tell_sessions(bool again, Effects& effects) {
  const bool waits = role_ == Role::kFollows && link_ != Link::kUp && may_ask();
  for (auto& [session, s] : sessions_) {
    if (waits || s.closing || (s.told && !again)) continue;
    s.told = true;
    effects.add(ToSession{session, message_of(standing())});
  }
}

void Standby::on(SessionUp up, TimePoint now, Effects& effects) {
  sessions_[up.session] = {now};
  if (sessions_.size() > limits::kSessionsMax)
    effects.add(EndSession{up.session, "This standby has as many sessions as it may."});
  tell_sessions(false, effects);
}

void Standby::on(SessionDown down, TimePoint, Effects&) { sessions_.erase(down.session); }

void Standby::ask(Effects& effects) {
  role_ = Role::kAsks;
  known_.term = options_.next_term(std::max(known_.head, known_.term));
  effects.add(KeepFollowing{known_});
  granted_.clear();
  say("The head at " + known_.head_address + " is gone: this standby asks " +
          std::to_string(known_.members.size()) + " workers to take its place.",
      effects);
  tell_sessions(true, effects);
}

void Standby::on(const Pledge& pledge, const Envelope& envelope, TimePoint, Effects& effects) {
  if (role_ != Role::kAsks || pledge.term != known_.term || pledge.standby != known_.standby)
    return;
  if (std::ranges::count(known_.members, pledge.life) == 0) return;
  const auto session = sessions_.find(envelope.from.actor.index);
  if (session == sessions_.end()) return;
  // A session speaks for one worker.
  if (session->second.life.value_or(pledge.life) != pledge.life) return;
  session->second.life = pledge.life;
  granted_.insert(pledge.life);
  if (2 * granted_.size() <= known_.members.size()) return;
  role_ = Role::kRules;
  say(std::to_string(granted_.size()) + " of " + std::to_string(known_.members.size()) +
          " workers have granted it: this is the head now.",
      effects);
  effects.add(TakeOver{known_.term});
}

/// The head may go on: this is its word that nobody takes over.
void Standby::on(const HeadReturns& head, const Envelope& envelope, TimePoint now,
                 Effects& effects) {
  const bool knows_none = known_.cluster_id.empty();
  if ((!knows_none && head.cluster_id != known_.cluster_id) || role_ == Role::kRules ||
      role_ == Role::kEnded)
    return;
  Standing word = standing();
  word.term = {};
  word.cluster_id = head.cluster_id;
  give_up_copy(effects);
  effects.add(ToSession{envelope.from.actor.index, message_of(std::move(word))});
  say("The head returns, and goes on.", effects);
  // What this session with it would make complete again is of before.
  if (link_ != Link::kIdle) effects.add(LeaveHead{});
  lose("it begins again.", limits::kSeekBackoffMin, now, effects);
}

// --- Time passes --------------------------------------------------------------------------------

void Standby::end(int code, const std::string& reason, Effects& effects) {
  role_ = Role::kEnded;
  effects.add(LeaveHead{});
  effects.add(StandbyEnds{code, reason});
}

void Standby::say(std::string text, Effects& effects) {
  if (text == said_) return;
  said_ = text;
  effects.add(StandbySays{std::move(text)});
}

void Standby::on_wake(TimePoint now, Effects& effects) {
  if (role_ == Role::kRules || role_ == Role::kEnded) return;
  switch (link_) {
    case Link::kStarting:
      heard_ = now;
      say("Following the head at " + known_.head_address + ".", effects);
      connect(now, effects);
      break;
    case Link::kIdle:
      if (now >= link_deadline_) connect(now, effects);
      break;
    case Link::kConnecting:
    case Link::kGreeting:
      if (now < link_deadline_) break;
      effects.add(LeaveHead{});
      lose("it does not answer.", limits::kSeekBackoffMin, now, effects);
      break;
    case Link::kUp:
      if (now >= heard_ + limits::kStandbySilence) {
        effects.add(LeaveHead{});
        lose("it is silent.", limits::kSeekBackoffMin, now, effects);
      } else if (now >= next_beat_) {
        beat(now, effects);
      }
      break;
  }
  if (role_ == Role::kFollows && link_ != Link::kUp && may_ask() &&
      now >= heard_ + limits::kStandbySilence)
    ask(effects);
  tell_sessions(false, effects);
  for (auto& [session, s] : sessions_)
    if (!s.closing && now >= s.opened + 2 * limits::kPledge) {
      s.closing = true;
      effects.add(EndSession{session, "There is no head here."});
    }
}

void Standby::end_turn(TimePoint, Effects& effects) {
  if (role_ == Role::kRules || role_ == Role::kEnded) return;
  effects.wake_at(link_ == Link::kUp ? std::min(next_beat_, heard_ + limits::kStandbySilence)
                                     : link_deadline_);
  if (role_ == Role::kFollows && link_ != Link::kUp && may_ask())
    effects.wake_at(heard_ + limits::kStandbySilence);
  for (const auto& [session, s] : sessions_)
    if (!s.closing) effects.wake_at(s.opened + 2 * limits::kPledge);
}

std::string Standby::violation() const {
  if (role_ == Role::kRules && 2 * granted_.size() <= known_.members.size())
    return "A standby rules without more than half of the workers.";
  if (role_ == Role::kAsks && !may_ask()) return "A standby asks without all that was accepted.";
  return {};
}

}  // namespace troupe
