#include "actors/head/journal_gatherer.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>

#include "runtime/counted.h"
#include "runtime/limits.h"
#include "runtime/numerics.h"
#include "transport/journal_records.h"

namespace troupe::journal_folder {
namespace {

/// Earlier versions wrote the numerics behind the model.
bool is_of(std::string_view word, std::string_view model) {
  return word.starts_with(model) && (word.size() == model.size() || word[model.size()] == '-');
}

Error other_model() {
  return unavailable("The head was started again with another model; send the request again.");
}
Error other_cluster() {
  return unavailable("The journal in the head's state folder was of another cluster; send the "
                     "request again.");
}
Error other_numerics(const std::string& before, const std::string& now) {
  return unavailable("The head was started again with other numerics (" + now + " instead of " +
                     before + "), which give other tokens; send the request again.");
}
Error other_masks() {
  return unavailable("The head was started again with another version of Troupe, whose grammars "
                     "allow other tokens; send the request again.");
}
Error no_heading() {
  return corrupt("The head's journal was damaged where it says of which model it is; send the "
                 "request again.");
}
Error damaged_acceptance() {
  return corrupt("What the head had written down of this request was damaged when it was started "
                 "again; send the request again.");
}
Error contradiction() {
  return corrupt("The head's journal was damaged: it has two different answers to this request; "
                 "send the request again.");
}

}  // namespace

void JournalGatherer::begin_file(const journal_format::Heading& heading, bool damaged) {
  findings_ = {};
  told_.clear();
  foreign_.reset();
  outdated_ = heading.term != 0 && heading.term < term_;
  term_ = std::max(term_, heading.term);
  if (outdated_) return;
  // Of a life whose clock may have stood anywhere; by itself each file says how old answers are.
  journal_.change_clock();
  if (damaged)
    foreign_ = no_heading();
  else if (!heading.model.empty() && !reader_.model.empty() &&
           !is_of(heading.model, reader_.model))
    foreign_ = other_model();
  else if (!heading.cluster.empty() && !reader_.cluster.empty() &&
           heading.cluster != reader_.cluster)
    foreign_ = other_cluster();
  if (foreign_) return;
  journal_.reserve(heading.next_request, heading.next_sequence);
  use_numerics(heading.numerics);
  use_masks(heading.masks);
}

/// From here on, what was computed was computed with them.
void JournalGatherer::use_numerics(const std::string& numerics) {
  const std::string& these = numerics.empty() ? reader_.last_numerics : numerics;
  if (these.empty() || these == numerics_) return;
  if (!numerics_.empty()) end_running(other_numerics(numerics_, these));
  numerics_ = these;
}

/// The same for what answers with a grammar were held to.
void JournalGatherer::use_masks(std::uint32_t masks) {
  if (masks_ && masks != *masks_) end_running(other_masks(), true);
  masks_ = masks;
}

Status JournalGatherer::add(const FrameReader::Frame& frame, bool damaged) {
  using journal_format::Kind;
  if (!frame.whole) {
    salvage(frame.content);
    return {};
  }
  if (outdated_) {
    ++findings_.unknown;
    findings_.unknown_why = "the file is of an earlier life of the head than the one before it";
    return {};
  }
  if (frame.kind == Kind::kHeading) {
    const std::string_view text(reinterpret_cast<const char*>(frame.content.data()),
                                frame.content.size());
    const auto line = journal_format::read_line(text);
    if (line && !foreign_) use_numerics(line->heading.numerics);
  } else if (frame.kind == Kind::kComplete) {
    if (!damaged && !foreign_) forget_untold();
  } else if (frame.kind == Kind::kRecord || frame.kind == Kind::kHint) {
    const auto record = transport::decode_record(frame.content);
    if (!record.ok()) return leave_out(frame.kind == Kind::kHint, record.error());
    if (foreign_)
      add_foreign(*record);
    else
      add_record(*record, damaged);
  } else {
    return leave_out(false, refused("A frame of the journal is of a kind (" +
                                    std::to_string(static_cast<std::uint32_t>(frame.kind)) +
                                    ") that this version of Troupe does not know."));
  }
  return {};
}

/// What cannot be read although it is whole.
Status JournalGatherer::leave_out(bool hint, const Error& why) {
  const bool newer = why.code == ErrorCode::kRefused;
  if (newer && !hint && !foreign_) return why;
  if (newer && hint) {
    if (findings_.hints++ == 0) findings_.hint_why = why.message;
  } else if (findings_.unknown++ == 0) {
    findings_.unknown_why = why.message;
  }
  return {};
}

void JournalGatherer::add_record(const JournalRecord& record, bool damaged) {
  if (journal_.fits(record)) {
    if (const auto* accepted = std::get_if<JournalAccepted>(&record))
      told_.insert(accepted->request);
    return journal_.append(record);
  }
  if (const auto* tokens = std::get_if<JournalTokens>(&record); tokens && journal_.denies(*tokens))
    contradicted_.insert(journal_.find(tokens->sequence)->request);
  if (const auto* accepted = std::get_if<JournalAccepted>(&record)) keep_name(*accepted);
  // Without damage it speaks of what a failed storage has missed, and what is told again.
  findings_.unusable += damaged ? 1 : 0;
}

/// The file has all: of what is in others alone, the end was not written there any more.
void JournalGatherer::forget_untold() {
  std::vector<std::uint64_t> untold;
  for (const auto& [id, request] : journal_.all())
    if (!told_.contains(id)) untold.push_back(id);
  for (const std::uint64_t id : untold) journal_.append(JournalForgotten{id});
}

/// Who asks for the requests of such a file is to hear why they do not go on. Others stay as they
/// are.
void JournalGatherer::add_foreign(const JournalRecord& record) {
  if (const auto* accepted = std::get_if<JournalAccepted>(&record)) {
    if (journal_.request(accepted->request) || !journal_.fits(record)) return;
    journal_.append(record);
    foreigners_.insert(accepted->request);
  } else if (const auto* forgotten = std::get_if<JournalForgotten>(&record)) {
    if (foreigners_.erase(forgotten->request) > 0) journal_.append(record);
  } else if (const auto* ended = std::get_if<JournalEnded>(&record)) {
    if (foreigners_.contains(ended->request)) over_.insert(ended->request);
  }
}

/// An acceptance that is damaged is good for nothing but the name that it gave.
void JournalGatherer::salvage(std::span<const std::byte> content) {
  const auto record = transport::decode_record(content);
  if (!record.ok()) return;
  if (const auto* accepted = std::get_if<JournalAccepted>(&*record)) keep_name(*accepted);
}

void JournalGatherer::keep_name(const JournalAccepted& accepted) {
  if (accepted.prepared->name && salvaged_.size() < limits::kRequestsMax)
    salvaged_.push_back(accepted.prepared->name);
}

FileFindings JournalGatherer::end_file() {
  for (const std::uint64_t request : foreigners_) end(request, *foreign_);
  foreigners_.clear();
  over_.clear();
  return std::exchange(findings_, {});
}

std::vector<std::string> JournalGatherer::finish() {
  if (!numerics_.empty() && !reader_.numerics.empty() && numerics_ != reader_.numerics)
    end_running(other_numerics(std::exchange(numerics_, reader_.numerics), reader_.numerics));
  if (!numerics_.empty() && !parse_numerics(numerics_))
    end_running(other_numerics(numerics_, "those that this version knows"));
  if (reader_.masks) use_masks(*reader_.masks);
  for (const std::uint64_t request : contradicted_)
    if (journal_.request(request)) end(request, contradiction());
  add_salvaged();
  if (std::ranges::all_of(journal_.all(), [](const auto& r) { return r.second.ended; }))
    numerics_.clear();
  std::vector<std::string> notes;
  if (ended_ > 0)
    notes.push_back(counted(ended_, "request") +
                    " of an earlier life of the head cannot be gone on with; whoever asks for " +
                    (ended_ == 1 ? "it" : "them") + " hears why: \"" + ended_why_ + "\"");
  return notes;
}

/// Those that no whole record tells of are there again, as requests that have failed.
void JournalGatherer::add_salvaged() {
  std::set<std::pair<std::string, std::uint32_t>> known;
  if (!salvaged_.empty())
    for (const auto& [id, request] : journal_.all())
      if (const auto& name = request.prepared->name) known.emplace(name->id, name->index);
  for (const auto& damaged : salvaged_) {
    if (!known.emplace(damaged->id, damaged->index).second) continue;
    auto name = std::make_shared<RequestName>(*damaged);
    name->key.clear();  // it may have been used again
    name->form = "{}";  // nobody knows what of it is damaged
    auto prepared = std::make_shared<PreparedRequest>();
    prepared->prompt = {0};
    prepared->seed = prepared->sampling.seed = 0;
    prepared->name = std::move(name);
    const std::uint64_t request = journal_.next_request();
    journal_.append(JournalAccepted{request, SequenceId{journal_.next_sequence()},
                                    journal_.last_end_unix_ms(), std::move(prepared)});
    end(request, damaged_acceptance());
  }
}

/// What has had its answer does not lack it now, and is not counted.
void JournalGatherer::end(std::uint64_t request, const Error& why) {
  if (!over_.contains(request) && ended_++ == 0) ended_why_ = why.message;
  journal_.append(JournalEnded{request, journal_.last_end_unix_ms(), why});
}

/// What could go on; or those of it alone whose answers have a grammar.
void JournalGatherer::end_running(const Error& why, bool with_grammar) {
  std::vector<std::uint64_t> running;
  for (const auto& [id, request] : journal_.all()) {
    const auto& rules = request.prepared->sampling.rules;
    const bool meant = !with_grammar || (rules && !rules->grammar.empty());
    if (!request.ended && meant) running.push_back(id);
  }
  for (const std::uint64_t id : running) end(id, why);
}

}  // namespace troupe::journal_folder
