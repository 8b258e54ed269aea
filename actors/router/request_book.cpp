#include "actors/router/request_book.h"

#include <chrono>

namespace troupe {

std::uint64_t RequestBook::add(PreparedRequest prepared,
                               const std::shared_ptr<const Tokenizer>& tokenizer, TimePoint now) {
  const std::uint64_t id = next_request_++;
  Request& request = requests_[id];
  request.prepared = std::make_shared<const PreparedRequest>(std::move(prepared));
  request.accepted = now;
  request.deadline = now + request.prepared->timeout;
  request.unfinished = request.prepared->n;
  deadlines_.emplace(request.deadline, id);
  journal_.append(JournalAccepted{id, SequenceId{next_sequence_}, request.prepared});
  room_.add(SequenceId{next_sequence_}, *request.prepared);

  const auto stops = std::make_shared<const StopStrings>(request.prepared->stop);
  request.choices.resize(request.prepared->n);
  for (Choice& choice : request.choices) {
    choice.sequence = SequenceId{next_sequence_++};
    if (!tokenizer) continue;
    choice.decoder.emplace(tokenizer, StreamDecoder::Options{true, request.prepared->keep_special});
    choice.stops.emplace(stops);
  }
  return id;
}

void RequestBook::note_begun(Request& request, TimePoint now) {
  request.timing.queued_ms =
      std::chrono::duration<double, std::milli>(now - request.accepted).count();
  ++counts_.running;
}

void RequestBook::add_tokens(const JournalTokens& tokens) {
  journal_.append(tokens);
  room_.grow(tokens.sequence, tokens.tokens.size());
}

void RequestBook::finish_choice(Request& request, Choice& choice) {
  choice.finished = true;
  --request.unfinished;
  room_.finish(choice.sequence);
}

void RequestBook::begin_attempt(Choice& choice) {
  const Journal::Sequence& sequence = *journal_.find(choice.sequence);
  if (sequence.choice == 0 && sequence.output.empty()) at(sequence.request).prompt_logprobs.clear();
  journal_.append(JournalSubmitted{choice.sequence, sequence.attempt + 1});
  choice.run.started = choice.run.progressed = false;
  choice.run.urgent = sequence.prepared->streams;
  ++counts_.replayed;
}

void RequestBook::finish(std::uint64_t id) {
  ++counts_.finished;
  end(id);
}

void RequestBook::fail(std::uint64_t id, bool cancelled) {
  ++(cancelled ? counts_.cancelled : counts_.failed);
  end(id);
}

void RequestBook::end(std::uint64_t id) {
  const auto found = requests_.find(id);
  deadlines_.erase({found->second.deadline, id});
  if (found->second.begun()) --counts_.running;
  room_.remove(found->second.choices.front().sequence, *found->second.prepared);
  requests_.erase(found);
  journal_.append(JournalEnded{id});
}

RequestBook::Choice& RequestBook::choice_of(SequenceId sequence) {
  const Journal::Sequence& known = *journal_.find(sequence);
  return at(known.request).choices[known.choice];
}

const std::pair<TimePoint, std::uint64_t>* RequestBook::next_deadline() const {
  return deadlines_.empty() ? nullptr : &*deadlines_.begin();
}

RequestCounts RequestBook::counts() const {
  RequestCounts counts = counts_;
  counts.waiting = requests_.size() - counts.running;
  return counts;
}

std::vector<RequestSummary> RequestBook::list(std::size_t count_max) const {
  std::vector<RequestSummary> list;
  for (const auto& [id, request] : requests_) {
    if (list.size() == count_max) break;
    RequestSummary summary{.id = id,
                           .running = request.begun(),
                           .replica = {},
                           .prompt_tokens = request.prepared->prompt.size(),
                           .accepted = request.accepted};
    for (const Choice& choice : request.choices) {
      if (!summary.replica) summary.replica = choice.run.replica;
      const Journal::Sequence& sequence = *journal_.find(choice.sequence);
      summary.tokens += sequence.output.size();
      summary.replays += sequence.attempt;
    }
    list.push_back(summary);
  }
  return list;
}

std::string RequestBook::violation() const {
  std::uint64_t running = 0;
  std::size_t choices = 0;
  for (const auto& [id, request] : requests_) {
    const std::string name = "request " + std::to_string(id);
    if (!deadlines_.contains({request.deadline, id})) return name + " has no deadline";
    if (request.choices.size() != request.prepared->n) return name + " lacks a choice";
    std::size_t unfinished = 0;
    for (const Choice& choice : request.choices) {
      unfinished += choice.finished ? 0 : 1;
      const Journal::Sequence* sequence = journal_.find(choice.sequence);
      if (!sequence || sequence->request != id) return name + " is not in the journal";
    }
    if (unfinished != request.unfinished || unfinished == 0)
      return name + " miscounts its unfinished choices";
    running += request.begun() ? 1 : 0;
    choices += request.choices.size();
  }
  if (deadlines_.size() != requests_.size()) return "a deadline has no request";
  if (journal_.requests() != requests_.size() || journal_.sequences() != choices)
    return "the journal holds what no request has";
  if (running != counts_.running) return "the running requests are miscounted";
  return room_.violation();
}

}  // namespace troupe
