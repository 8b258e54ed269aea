#include "actors/router/journal_keeping.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "actors/router/journal_words.h"
#include "runtime/limits.h"

namespace troupe {
namespace {

/// Of requests that are told again, a turn: what a person does not notice.
constexpr std::size_t kToldWordsATurn = 256u << 10;

}  // namespace

void JournalKeeping::note(const JournalRecord& record) {
  if (!on_) return;
  if (const auto* gone = std::get_if<JournalForgotten>(&record))
    forgotten_.emplace_back(mark(), gone->request);
  if (retry_at_) return;
  fresh_.push_back(record);
  grown_words_ += record_words(record);
}

bool JournalKeeping::on_kept(const JournalKept& kept, RouterEffects& effects) {
  if (kept.file != file_ || retry_at_) return false;
  kept_ = kept.mark;
  while (!forgotten_.empty() && forgotten_.front().first <= kept_) forgotten_.pop_front();
  // After a failure, what it has missed must have been told again.
  if (trusted() || telling_ || told_mark_ > kept_) return true;
  trouble_.clear();
  effects.add(JournalNote{"The journal is written again: requests are accepted."});
  return true;
}

void JournalKeeping::on_failed(const JournalFailed& failed, TimePoint now, RouterEffects& effects) {
  // Of an earlier file, too: what it lacks is told again, but not all at once.
  if (failed.file > file_ || retry_at_) return;
  const bool news = trusted();
  trouble_ = "The journal cannot be written: " + failed.reason +
             " Until it can be, no request is accepted; those that were go on. Make room there, or "
             "mend the disk: it is tried again every few seconds. Where neither can be done, end "
             "the head, move " + folder_ + " away, and start it with --no-journal: what has not "
             "been answered by then is lost, and so is what it accepts later, when it dies.";
  if (news) effects.add(JournalNote{trouble_});
  retry_at_ = std::max(now, next_retry_);
  fresh_.clear();
  break_copy("its own journal cannot be written, so the copy has a gap.");
}

void JournalKeeping::give_up(std::uint64_t mark, TimePoint now, RouterEffects& effects) {
  const auto patience =
      std::chrono::duration_cast<std::chrono::seconds>(limits::kJournalPatience).count();
  const std::string silent = "has not answered for " + std::to_string(patience) + " s.";
  if (trusted() && mark > kept_)
    on_failed({file_, folder_ + " " + silent}, now, effects);
  else
    break_copy("it " + silent);
}

// --- The copy -----------------------------------------------------------------------------------

void JournalKeeping::copy(std::uint32_t session) {
  copy_ = Copy{session};
  if (!on_) break_copy("this head keeps no journal.");
}

void JournalKeeping::break_copy(std::string reason) {
  if (!copying()) return;
  copy_->broken = true;
  copy_news_ = CopyBroken{copy_->session, std::move(reason)};
}

bool JournalKeeping::on_copied(const JournalCopied& copied) {
  if (!copying() || copied.mark > mark_ || copied.mark <= copy_->mark) return false;
  copy_->mark = copied.mark;
  if (!copy_->holds && copy_->begun && !telling_ && told_mark_ <= copy_->mark) {
    copy_->holds = true;
    copy_->complete_at = mark_ + 1;  // this turn's
  }
  if (copy_->holds && !copy_->complete && copy_->mark >= copy_->complete_at) {
    copy_->complete = true;
    copy_news_ = CopyComplete{copy_->session};
  }
  return true;
}

// --- Files --------------------------------------------------------------------------------------

void JournalKeeping::begin_file(const Journal& journal, TimePoint now) {
  if (begun_) ++file_;
  begun_ = true;
  if (copying()) copy_->begun = true;
  grown_words_ = 0;
  if (retry_at_) {
    next_retry_ = now + limits::kJournalRetry;
    for (auto& [at, request] : forgotten_) {
      at = mark();
      fresh_.push_back(JournalForgotten{request});
    }
  }
  retry_at_.reset();
  telling_ = Journal::Place{};
  told_mark_ = 0;
  tell_until_ = journal.all().empty() ? 0 : journal.all().rbegin()->first;
}

void JournalKeeping::tell_again(const Journal& journal, KeepRecords& out) {
  const std::size_t before = out.records.size();
  out.completes = journal.tell(*telling_, tell_until_, kToldWordsATurn, out.records);
  for (std::size_t i = before; i < out.records.size(); ++i)
    grown_words_ += record_words(out.records[i]);
  out.tells = true;
  told_mark_ = mark_ + 1;
  if (!out.completes) return;
  telling_.reset();
  complete_words_ = grown_words_;
}

void JournalKeeping::end_turn(const Journal& journal, TimePoint now, RouterEffects& effects) {
  if (!on_) return;
  if (retry_at_ && now < *retry_at_) return effects.wake_at(*retry_at_);
  KeepRecords out;
  const bool grown = !telling_ && grown_words_ > 2 * complete_words_ + limits::kJournalSlackWords;
  out.begins = !begun_ || retry_at_ || grown || (copying() && !copy_->begun);
  if (out.begins) begin_file(journal, now);
  out.records = std::exchange(fresh_, {});
  const bool had = told_mark_ <= kept_ && (!copying() || told_mark_ <= copy_->mark);
  if (telling_ && had) tell_again(journal, out);
  // So that it says when it has them.
  out.tells = std::exchange(wants_news_, false) || out.tells || copy_begins_to_hold();
  if (out.records.empty() && !out.begins && !out.tells) return;
  out.file = file_;
  out.mark = ++mark_;
  if (copying() && copy_->begun) out.copy_to = copy_->session;
  effects.add(std::move(out));
}

}  // namespace troupe
