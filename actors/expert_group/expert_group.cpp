#include "actors/expert_group/expert_group.h"

#include <exception>
#include <map>
#include <new>

#include "runtime/limits.h"
#include "runtime/log.h"

namespace troupe {

ExpertGroup::ExpertGroup(const ModelConfig& model, Numerics numerics, Address self, Post& post,
                         Device& device)
    : row_bytes_(static_cast<std::size_t>(model.hidden_size) * wire_size(wire_type(numerics))),
      self_(self),
      post_(post),
      device_(device),
      forward_(model, numerics, device.threads()) {}

void ExpertGroup::on(const Envelope& envelope) {
  if (const auto* lost = std::get_if<Undeliverable>(envelope.message.get())) {
    // An answer that could not travel (too long, no room): whoever waits for it must not wait on.
    // If the NotHere cannot travel either, nobody is there: another one would come back for ever.
    if (lost->kind == Message(ExpertOutput{}).index())
      post_.send({self_, lost->to, message_of(NotHere{lost->reference, {}, lost->error.message})});
    return;
  }
  const auto* dispatch = std::get_if<Dispatch>(envelope.message.get());
  if (!dispatch) return;
  bool fits = dispatch->payload.bytes.size() == dispatch->rows * row_bytes_ &&
              dispatch->pairs.size() <= static_cast<std::size_t>(dispatch->rows) * limits::kTopKMax;
  for (const auto& pair : dispatch->pairs) fits = fits && pair.row < dispatch->rows;
  if (!fits) return answer_not_here(envelope, {}, "the rows do not have this model's size");
  std::unique_lock lock(mutex_);
  if (waiting_.size() >= limits::kDispatchesWaitingMax) {
    lock.unlock();
    return answer_not_here(envelope, {}, "too many questions wait");
  }
  waiting_.push_back(envelope);
  schedule();
}

void ExpertGroup::schedule() {
  if (scheduled_) return;
  scheduled_ = true;
  const Status queued = device_.submit([self = shared_from_this()] { self->run_waiting(); });
  if (queued.ok()) return;
  scheduled_ = false;
  for (const auto& question : waiting_) answer_not_here(question, {}, queued.error().message);
  waiting_.clear();
}

void ExpertGroup::run_waiting() {
  std::vector<Envelope> taken;
  {
    std::lock_guard lock(mutex_);
    taken.swap(waiting_);
    scheduled_ = false;
  }
  std::map<std::int32_t, std::vector<Envelope>> by_layer;
  for (auto& question : taken)
    by_layer[std::get<Dispatch>(*question.message).layer].push_back(std::move(question));
  for (const auto& [layer, questions] : by_layer) {
    if (const std::string failed = device_.failed(); !failed.empty()) {
      for (const auto& question : questions) answer_not_here(question, {}, failed);
      continue;
    }
    try {
      run_layer(layer, questions);
    } catch (const ThreadPool::Interrupted& e) {
      for (const auto& question : questions) answer_not_here(question, {}, e.what());
    } catch (const std::bad_alloc&) {
      spdlog::error("experts of layer {} could not be computed: memory is short", layer);
      for (const auto& question : questions) answer_not_here(question, {}, "memory is short");
    } catch (const std::exception& e) {
      // What a kernel throws will not be better the next time.
      device_.fail(e.what());
      for (const auto& question : questions) answer_not_here(question, {}, e.what());
    }
  }
}

void ExpertGroup::run_layer(std::int32_t layer, const std::vector<Envelope>& questions) {
  const auto experts = device_.experts();
  std::vector<const std::byte*> rows;
  std::vector<std::int32_t> ids;
  std::vector<std::byte*> outputs;
  std::vector<std::pair<const Envelope*, std::shared_ptr<Buffer>>> answers;
  for (const auto& question : questions) {
    const auto& dispatch = std::get<Dispatch>(*question.message);
    std::vector<std::int32_t> absent;
    for (const auto& pair : dispatch.pairs)
      if (!experts->has({layer, pair.expert})) absent.push_back(pair.expert);
    if (!absent.empty()) {
      answer_not_here(question, std::move(absent), "this device does not hold them");
      continue;
    }
    auto buffer = std::make_shared<Buffer>(dispatch.pairs.size() * row_bytes_);
    for (std::size_t i = 0; i < dispatch.pairs.size(); ++i) {
      rows.push_back(dispatch.payload.bytes.data() + dispatch.pairs[i].row * row_bytes_);
      ids.push_back(dispatch.pairs[i].expert);
      outputs.push_back(buffer->data() + i * row_bytes_);
    }
    answers.emplace_back(&question, std::move(buffer));
  }
  std::vector<std::int32_t> missing;
  forward_.run(*experts, {layer, rows.data(), ids, outputs.data()}, missing);
  for (auto& [question, buffer] : answers) {
    const auto& dispatch = std::get<Dispatch>(*question->message);
    post_.send(
        {self_, question->from,
         message_of(ExpertOutput{dispatch.call, static_cast<std::uint32_t>(dispatch.pairs.size()),
                                 Payload::of(std::move(buffer))})});
  }
}

void ExpertGroup::answer_not_here(const Envelope& question, std::vector<std::int32_t> experts,
                                  const std::string& reason) {
  const auto& dispatch = std::get<Dispatch>(*question.message);
  post_.send(
      {self_, question.from, message_of(NotHere{dispatch.call, std::move(experts), reason})});
}

namespace {

class Body : public ActorBody {
 public:
  explicit Body(std::shared_ptr<ExpertGroup> group) : group_(std::move(group)) {}
  void on_message(const Envelope& envelope) override { group_->on(envelope); }

 private:
  std::shared_ptr<ExpertGroup> group_;
};

}  // namespace

ActorHandle spawn_expert_group(caf::actor_system& system, std::shared_ptr<ExpertGroup> group) {
  return spawn_actor(system, [group](const ActorHandle&) { return std::make_unique<Body>(group); });
}

}  // namespace troupe
