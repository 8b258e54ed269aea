#include "actors/expert_group/expert_group.h"

#include <algorithm>
#include <utility>

#include "runtime/limits.h"

namespace troupe {
namespace {

Ref<LayerShardInbox> shard_at(const Address& address) {
  Ref<LayerShardInbox> shard;
  shard.address = address;
  return shard;
}

}  // namespace

void ExpertGroup::on(const Dispatch& dispatch, const Envelope& envelope, TimePoint now,
                     Effects& effects) {
  if (!fits(dispatch))
    return answer(not_here(envelope, {}, "the rows do not have this model's size"), effects);
  if (open_.size() >= limits::kDispatchesWaitingMax)
    return answer(not_here(envelope, {}, "too many questions wait"), effects);
  if (open_.empty()) say_at_ = now + limits::kProgressEvery;
  if (!open_.insert({envelope.from, dispatch.call}))
    return answer(not_here(envelope, {}, "that question is being answered"), effects);
  effects.add(AskPass{envelope});
}

bool ExpertGroup::fits(const Dispatch& dispatch) const {
  return dispatch.payload.bytes.size() == dispatch.rows * row_bytes_ &&
         dispatch.pairs.size() <= static_cast<std::size_t>(dispatch.rows) * limits::kTopKMax &&
         std::all_of(dispatch.pairs.begin(), dispatch.pairs.end(),
                     [&](const ExpertPair& pair) { return pair.row < dispatch.rows; });
}

/// An answer that could not travel (too long, no room): the asker must not wait on. If the NotHere
/// cannot travel either, nobody is there: another one would come back without end.
void ExpertGroup::on(const Undeliverable& lost, const Envelope&, TimePoint, Effects& effects) {
  if (lost.kind == Message(ExpertOutput{}).index())
    effects.send(shard_at(lost.to), NotHere{lost.reference, {}, lost.error.message});
}

void ExpertGroup::on(PassEnded ended, TimePoint, Effects& effects) {
  for (auto& found : ended.answers) {
    const auto call = std::get<Dispatch>(*found.question.message).call;
    unasked_ |= !open_.erase({found.question.from, call});
    answer(std::move(found), effects);
  }
}

void ExpertGroup::on_wake(TimePoint now, Effects& effects) {
  if (open_.empty() || now < say_at_) return;
  say_at_ = now + limits::kProgressEvery;
  SayAtWork say;
  for (const auto& [shard, call] : open_) say.askers.push_back({shard, {call}});
  effects.add(std::move(say));
}

void ExpertGroup::end_turn(TimePoint, Effects& effects) {
  if (!open_.empty()) effects.wake_at(say_at_);
}

void ExpertGroup::answer(PassAnswer answer, Effects& effects) const {
  effects.send(shard_at(answer.question.from), std::move(answer.answer));
}

std::string ExpertGroup::violation() const {
  if (open_.size() > limits::kDispatchesWaitingMax) return "more questions are open than may be";
  if (unasked_) return "more was answered than asked";
  return {};
}

}  // namespace troupe
