#include "actors/router/crash_evidence.h"

#include <algorithm>

namespace troupe {
namespace {

Error given_up(const RequestBook::Run& run, std::string why) {
  while (!why.empty() && why.back() == '.') why.pop_back();
  const std::string times =
      std::to_string(run.strikes) + " times in a row (the last time: " + why + ").";
  if (run.strikes == run.strikes_alone)
    return internal_error(
        "The request was given up: it was running alone each time a worker crashed, " + times);
  return internal_error(
      "The request was given up: a worker crashed before it gave a single new token, " + times);
}

}  // namespace

void CrashEvidence::forget_old(TimePoint now) {
  while (!losses_.empty() &&
         (losses_.size() > kLossesMax || now - losses_.front().at > kCrashReportWait))
    losses_.pop_front();
}

void CrashEvidence::note_loss(RequestBook& book, const LifeLost& lost, TimePoint now) {
  Loss loss{lost.life, now, 0, {}};
  for (const auto& [id, request] : book.all()) {
    for (const RequestBook::Choice& choice : request.choices) {
      const RequestBook::Run& run = choice.run;
      if (!run.replica) continue;
      if (std::count(lost.replicas.begin(), lost.replicas.end(), *run.replica) == 0) continue;
      ++loss.there;
      if (run.started && !run.progressed)
        loss.held.push_back({choice.sequence, book.journal().find(choice.sequence)->output.size()});
      // Those whose replica lives on: from now on only a newer token counts.
      book.choice_of(choice.sequence).run.progressed = false;
    }
  }
  losses_.push_back(std::move(loss));
  forget_old(now);
}

CrashEvidence::Verdict CrashEvidence::note_crash(RequestBook& book, const LifeCrashed& crashed,
                                                 TimePoint now) {
  Verdict verdict;
  forget_old(now);
  const auto found = std::find_if(losses_.begin(), losses_.end(),
                                  [&](const Loss& loss) { return loss.life == crashed.life; });
  if (found == losses_.end()) return verdict;
  const bool alone = found->there == 1;
  std::vector<SequenceId> struck;
  std::size_t suspects = 0;
  for (const Held& held : found->held) {
    const RequestBook::Choice* choice = book.find(held.sequence);
    if (!choice || book.journal().find(held.sequence)->output.size() != held.tokens) continue;
    struck.push_back(held.sequence);
    suspects += choice->run.suspect() ? 1 : 0;
  }
  losses_.erase(found);
  for (const SequenceId id : struck) {
    RequestBook::Run& run = book.choice_of(id).run;
    const bool only_suspect = run.suspect() && suspects == 1;
    ++run.strikes;
    run.strikes_alone += alone ? 1 : 0;
    const bool guilty = (alone && (run.strikes_alone >= 2 || run.strikes >= 3)) ||
                        (only_suspect && run.strikes >= kStrikesInCompanyMax);
    if (guilty)
      verdict.convicted.emplace_back(book.journal().find(id)->request, given_up(run, crashed.why));
    else if (run.suspect())
      verdict.suspects.push_back(id);
  }
  return verdict;
}

}  // namespace troupe
