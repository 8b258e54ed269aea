#include "actors/router/journal.h"

#include <cassert>

namespace troupe {

void Journal::append(const JournalRecord& record) {
  std::visit([this](const auto& r) { apply(r); }, record);
}

const Journal::Sequence* Journal::find(SequenceId sequence) const {
  const auto found = sequences_.find(sequence);
  return found == sequences_.end() ? nullptr : &found->second;
}

void Journal::apply(const JournalAccepted& record) {
  const bool added =
      requests_.emplace(record.request, Request{record.first_sequence, record.prepared}).second;
  assert(added);
  for (std::uint32_t choice = 0; choice < record.prepared->n; ++choice) {
    const SequenceId id{record.first_sequence.value + choice};
    sequences_[id] = Sequence{record.request, choice, 0, record.prepared, {}};
  }
  tokens_ += record.prepared->prompt.size();
}

void Journal::apply(const JournalSubmitted& record) {
  const auto found = sequences_.find(record.sequence);
  assert(found != sequences_.end());
  found->second.attempt = record.attempt;
}

void Journal::apply(const JournalTokens& record) {
  const auto found = sequences_.find(record.sequence);
  assert(found != sequences_.end());
  std::vector<TokenId>& output = found->second.output;
  assert(record.index == output.size());
  output.insert(output.end(), record.tokens.begin(), record.tokens.end());
  tokens_ += record.tokens.size();
}

void Journal::apply(const JournalEnded& record) {
  const auto found = requests_.find(record.request);
  assert(found != requests_.end());
  const Request& request = found->second;
  tokens_ -= request.prepared->prompt.size();
  for (std::uint32_t choice = 0; choice < request.prepared->n; ++choice) {
    const auto sequence = sequences_.find(SequenceId{request.first_sequence.value + choice});
    tokens_ -= sequence->second.output.size();
    sequences_.erase(sequence);
  }
  requests_.erase(found);
}

}  // namespace troupe
