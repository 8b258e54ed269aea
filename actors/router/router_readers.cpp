#include <algorithm>
#include <utility>

#include "actors/router/router.h"
#include "runtime/in_hand.h"

// The Router's readers: who asks for a request again, and when its news may leave.

namespace troupe {
namespace {

Error nobody_has(const std::string& id) {
  return not_found("There is no request '" + id.substr(0, 256) +
                   "'; answers are kept for an hour after their end.");
}

}  // namespace

const RequestNames::Group* Router::group_of_key(const PreparedRequest& prepared) const {
  const RequestName* name = prepared.name.get();
  if (!name || name->key.empty()) return nullptr;
  const auto* group = book_.names().find_key(name->owner, name->key);
  return group && name->index < group->requests.size() ? group : nullptr;
}

void Router::on(AttachReader attach, TimePoint now, Effects& effects) {
  RequestWanted& wanted = attach.wanted;
  const auto* group = book_.names().find(wanted.id, wanted.owner);
  const bool known = group && wanted.index < group->requests.size();
  const std::uint64_t id = known ? group->requests[wanted.index] : 0;
  if (id == 0) return effects.add(RequestAccepted{attach.ticket, nobody_has(wanted.id)});
  if (const Status can = can_have(journal(), id, wanted.from); !can.ok())
    return effects.add(RequestAccepted{attach.ticket, can.error()});
  this->attach(attach.ticket, id, std::move(wanted.from), wanted.follow, now, effects);
}

void Router::on(FindRequests find, TimePoint now, Effects& effects) {
  const auto* group = find.key.empty() ? book_.names().find(find.id, find.owner)
                                       : book_.names().find_key(find.owner, find.key);
  if (!group) return effects.add(RequestsFound{find.ticket, nobody_has(find.id)});
  std::vector<NamedRequest> found(group->requests.size());
  std::vector<std::uint64_t> requests = group->requests;  // it may go with the last of them
  for (std::size_t i = 0; i < requests.size(); ++i)
    if (requests[i] != 0) found[i] = book_.describe(requests[i]);
  RequestsFound answer{find.ticket, std::move(found)};
  if (!find.forget) return effects.add(std::move(answer));
  for (const std::uint64_t id : requests)
    if (book_.contains(id))
      fail(id, cancelled("The request was deleted."), now, effects);
    else if (id != 0)
      book_.forget(id);
  tell_when_kept(std::move(answer), now, effects);
}

/// Nothing of the request may leave yet: its acceptance or its end is not on storage, or the
/// prompt's log-probabilities or hidden states, which the first event carries, are not all there.
bool Router::held(const Request& request) {
  const JournalKeeping& keeping = book_.keeping();
  if (keeping.awaits(request.mark) || keeping.awaits(request.end_mark)) return true;
  if (request.first_event_sent || request.choices[0].finished) return false;
  const PreparedRequest& prepared = *request.prepared;
  return request.hidden.size() < prepared.hidden_values() ||
         (prepared.prompt_logprobs >= 0 &&
          request.prompt_logprobs.size() + 1 < prepared.prompt.size());
}

void Router::attach(std::uint64_t ticket, std::uint64_t id, std::vector<std::uint32_t> from,
                    bool follow, TimePoint now, Effects& effects) {
  const Journal::Request& known = *journal().request(id);
  effects.add(RequestAccepted{ticket, id, known.prepared->name, known.accepted_unix_ms});
  RequestBook::Reader reader{ticket, std::move(from), false};
  // What the others have not been told, this one is told with all the rest.
  if (book_.contains(id)) flush(id, now, effects);
  if (!book_.contains(id)) {
    const auto& error = journal().request(id)->error;
    if (!error) return latecomers_.push_back({ticket, id, ToldAgain(std::move(reader.from))});
    GenerationEvent event;
    event.request_done = true;
    event.error = error;
    // With the others, who may not have been told yet.
    for (Unkept& unkept : unkept_)
      if (auto* last = std::get_if<DeliverEvent>(&unkept.news); last && last->request == id)
        return last->readers.push_back(ticket);
    return effects.add(DeliverEvent{id, std::move(event), {ticket}, true});
  }
  Request& request = book_.at(id);
  const bool waits = held(request);
  // What is over but for the storage is told in a moment.
  if (!follow && request.unfinished > 0) {
    if (!waits) return latecomers_.push_back({ticket, id, ToldAgain(std::move(reader.from))});
    GenerationEvent nothing;
    nothing.prompt_tokens = request.prepared->prompt;
    nothing.request_done = true;
    return effects.add(DeliverEvent{id, std::move(nothing), {ticket}, true});
  }
  const bool begins = std::ranges::all_of(reader.from, [](std::uint32_t n) { return n == 0; });
  // Whoever comes before anything was told hears all of it with the others.
  reader.waits = request.first_event_sent || !begins;
  request.readers.push_back(std::move(reader));
  if (!waits) catch_up(id, request);
}

/// Those who wait for the journal to come to what they have, and it has.
void Router::catch_up(std::uint64_t id, const Request& request) {
  for (const RequestBook::Reader& reader : request.readers)
    if (reader.waits && reaches(journal(), id, reader.from) &&
        std::ranges::count(latecomers_, reader.ticket, &Latecomer::ticket) == 0)
      latecomers_.push_back({reader.ticket, id, ToldAgain(reader.from), true});
}

/// One after the other, `tokens` of them all together.
void Router::tell_latecomers(std::size_t tokens, TimePoint now, Effects& effects) {
  for (std::size_t i = latecomers_.size(); i > 0 && tokens > 0; --i) {
    // It stays there meanwhile, so that nobody takes it for one who is not told yet.
    if (!tell_more(latecomers_.front(), tokens, now, effects))
      latecomers_.push_back(std::move(latecomers_.front()));
    latecomers_.pop_front();
  }
  // What comes meanwhile is in the mailbox before that.
  if (tokens == 0 && !latecomers_.empty()) effects.wake_at(now);
}

/// True: it is no latecomer any more.
bool Router::tell_more(Latecomer& latecomer, std::size_t& tokens, TimePoint now,
                       Effects& effects) {
  const std::uint64_t id = latecomer.request;
  const auto deliver = [&](GenerationEvent event) {
    effects.add(DeliverEvent{id, std::move(event), {latecomer.ticket}, true});
  };
  if (!journal().request(id)) {
    GenerationEvent gone;
    gone.request_done = true;
    gone.error = not_found("The request was deleted.");
    deliver(std::move(gone));
    return true;
  }
  const auto prepared = journal().request(id)->prepared;
  const InHand hand(prepared->id());
  if (book_.contains(id)) {
    if (held(book_.at(id))) return false;
    flush(id, now, effects);  // or the others would be told of what this one knows by then
  }
  std::vector<GenerationEvent> events;
  const bool all = latecomer.told.tell(journal(), id, options_.tokenizer, tokens, events);
  const bool goes_on = latecomer.follows && book_.contains(id);
  if (all && !goes_on) {
    if (events.empty()) events.emplace_back();
    events.back().request_done = true;
  }
  for (GenerationEvent& event : events) {
    event.behind = !all;
    if (book_.contains(id)) event.timing = book_.at(id).timing;
    deliver(std::move(event));
  }
  if (all && goes_on)
    std::ranges::find(book_.at(id).readers, latecomer.ticket, &RequestBook::Reader::ticket)->waits =
        false;
  return all;
}

void Router::on(JournalKept kept, TimePoint now, Effects& effects) {
  if (book_.keeping().on_kept(kept, effects)) stop_waiting(effects, now);
}

void Router::on(JournalFailed failed, TimePoint now, Effects& effects) {
  book_.keeping().on_failed(failed, now, effects);
  stop_trusting(effects, now);
}

void Router::on(CopyJournal copy, TimePoint, Effects&) { book_.keeping().copy(copy.session); }

void Router::on(JournalCopied copied, TimePoint now, Effects& effects) {
  if (!book_.keeping().on_copied(copied)) return;
  if (book_.keeping().copy_begins_to_hold()) wait_for_all(now);
  stop_waiting(effects, now);
}

/// From now on: also those that came while the copy was not waited for, and may have been told
/// something.
void Router::wait_for_all(TimePoint now) {
  std::erase_if(unkept_, [](const Unkept& unkept) { return unkept.news.index() == 0; });
  for (const auto& [id, request] : book_.all())
    if (const auto mark = std::max(request.mark, request.end_mark); book_.keeping().awaits(mark))
      unkept_.push_back({now, mark, id});
  std::ranges::stable_sort(unkept_, {}, &Unkept::mark);
}

void Router::on(CopyNoMore, TimePoint now, Effects& effects) {
  book_.keeping().copy_no_more();
  stop_waiting(effects, now);
}

std::optional<TimePoint> Router::patience_ends() const {
  if (unkept_.empty() || !book_.keeping().may_give_up(unkept_.front().mark)) return std::nullopt;
  return unkept_.front().since + limits::kJournalPatience;
}

/// What this turn's records say: or the next head would run what is over, or was deleted.
void Router::tell_when_kept(Held news, TimePoint now, Effects& effects) {
  const std::uint64_t mark = book_.keeping().mark();
  if (!book_.keeping().awaits(mark)) return tell(std::move(news), mark, now, effects);
  book_.keeping().want_news();
  unkept_.push_back({now, mark, std::move(news)});
}

void Router::tell(Held news, std::uint64_t mark, TimePoint now, Effects& effects) {
  if (const auto* request = std::get_if<std::uint64_t>(&news)) {
    if (book_.contains(*request)) flush(*request, now, effects);
  } else if (auto* last = std::get_if<DeliverEvent>(&news)) {
    effects.add(std::move(*last));
  } else if (auto* deleted = std::get_if<RequestsFound>(&news)) {
    if (book_.keeping().lost(mark))
      deleted->requests = unavailable(
          "It is over and deleted here, but a head that begins now may know it still. " +
          trouble());
    effects.add(std::move(*deleted));
  }
}

/// Tells what was held back for the storage's sake, and no longer is.
void Router::stop_waiting(Effects& effects, TimePoint now) {
  while (!unkept_.empty() && !book_.keeping().awaits(unkept_.front().mark)) {
    Unkept kept = std::move(unkept_.front());
    unkept_.pop_front();
    tell(std::move(kept.news), kept.mark, now, effects);
  }
}

/// Storage may have failed: whose acceptance it does not have was not accepted.
void Router::stop_trusting(Effects& effects, TimePoint now) {
  std::vector<std::uint64_t> lost;
  for (const auto& [id, request] : book_.all())
    if (book_.keeping().lost(request.mark)) lost.push_back(id);
  for (const std::uint64_t id : lost) {
    effects.add(give_up(id, unavailable(trouble()), now, effects));
    book_.refuse(id);
  }
  stop_waiting(effects, now);
}

}  // namespace troupe
