#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "actors/router/journal.h"
#include "actors/router/messages.h"
#include "runtime/clock.h"

namespace troupe {

/// What of the journal goes to storage. A part of the Router.
///
///     note ─► records of a turn ─ end_turn: KeepRecords(mark) ─► storage ─ JournalKept(mark) ─►
///
/// Files follow each other: a new one begins when the newest has twice the size that it had once it
/// had all, and after a failure. Requests are told again in it, some at a time, the next when those
/// are kept, beside what happens meanwhile; once all have been, it is complete and those before it
/// may go. Until then all of them together say what happened.
///
/// A storage that fails, or says nothing for too long, has trouble() until a new file has all: no
/// newcomer can be accepted then, and nothing else is waited for. It is tried again at once, and if
/// that fails, too, from time to time.
///
/// A copy goes to a standby, from the beginning of a file on. Once it has all, records are kept
/// when it has them as well; if it breaks, they wait until nobody can take over with it any more.
class JournalKeeping {
 public:
  using CopyNews = std::variant<CopyComplete, CopyBroken>;

  /// The first file's number, 0: nothing is kept; and where files are, for people.
  JournalKeeping(std::uint64_t file, std::string folder)
      : on_(file != 0), folder_(std::move(folder)), file_(file) {}

  void note(const JournalRecord& record);
  /// That of this turn's records.
  std::uint64_t mark() const { return mark_ + 1; }
  /// Whether records with that mark may still be lost, and are worth waiting for.
  bool awaits(std::uint64_t mark) const {
    return on_ && ((trusted() && mark > kept_) || (copy_ && copy_->holds && mark > copy_->mark));
  }
  /// Whether storage failed before it had the records with that mark.
  bool lost(std::uint64_t mark) const { return !trusted() && mark > kept_; }
  /// Why nobody can be accepted now, and what to do about it; empty: storage is expected to answer.
  const std::string& trouble() const { return trouble_; }
  /// Storage says when it has this turn's records, whatever they are.
  void want_news() { wants_news_ = true; }
  /// Whether whoever is waited for with that mark may be given up: see give_up().
  bool may_give_up(std::uint64_t mark) const {
    return (trusted() && mark > kept_) || (copying() && copy_->holds && mark > copy_->mark);
  }

  /// Whether it is news.
  bool on_kept(const JournalKept& kept, RouterEffects& effects);
  /// What was not kept is not waited for any more. It is tried again.
  void on_failed(const JournalFailed& failed, TimePoint now, RouterEffects& effects);
  /// Nothing that waits with that mark has been heard of for too long.
  void give_up(std::uint64_t mark, TimePoint now, RouterEffects& effects);

  /// A copy goes there, from the next file on, which begins now.
  void copy(std::uint32_t session);
  /// Whether it is news.
  bool on_copied(const JournalCopied& copied);
  /// Whether everything is held for it from this turn on.
  bool copy_begins_to_hold() const { return copying() && copy_->complete_at == mark_ + 1; }
  void copy_no_more() { copy_.reset(); }
  /// What has happened to the copy, once.
  std::optional<CopyNews> take_copy_news() { return std::exchange(copy_news_, std::nullopt); }

  void end_turn(const Journal& journal, TimePoint now, RouterEffects& effects);

 private:
  struct Copy {
    std::uint32_t session = 0;
    bool begun = false;     ///< a file has begun since
    bool holds = false;     ///< what comes from now on is kept when it is there, too
    std::uint64_t complete_at = 0;  ///< then it has all that anybody heard of before
    bool complete = false;
    bool broken = false;    ///< and lacks what came since
    std::uint64_t mark = 0;
  };
  bool trusted() const { return trouble_.empty(); }
  bool copying() const { return copy_ && !copy_->broken; }
  void break_copy(std::string reason);
  void begin_file(const Journal& journal, TimePoint now);
  void tell_again(const Journal& journal, KeepRecords& out);

  bool on_;
  std::string folder_;
  std::string trouble_;
  bool wants_news_ = false;
  bool begun_ = false;   ///< the file is
  std::uint64_t file_;
  std::uint64_t mark_ = 0;  ///< given last
  std::uint64_t kept_ = 0;
  std::vector<JournalRecord> fresh_;
  /// Requests that were forgotten, behind the mark of that record, until it is kept: earlier files
  /// may still have them when a new one follows a failure.
  std::deque<std::pair<std::uint64_t, std::uint64_t>> forgotten_;
  std::size_t grown_words_ = 0;            ///< of the file
  std::size_t complete_words_ = 0;         ///< of the file, once it had all
  std::optional<Journal::Place> telling_;  ///< up to where requests are in the file; none: all are
  std::uint64_t tell_until_ = 0;
  std::uint64_t told_mark_ = 0;        ///< of what was told last
  std::optional<TimePoint> retry_at_;  ///< it failed
  TimePoint next_retry_{};             ///< not earlier: it was tried again just now
  std::optional<Copy> copy_;
  std::optional<CopyNews> copy_news_;
};

}  // namespace troupe
