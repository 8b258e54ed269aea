#include "actors/expert_group/forward_pass.h"

#include <algorithm>
#include <deque>
#include <string>
#include <utility>

#include "actors/device/guarded.h"

namespace troupe {
namespace {

/// Which of the others it is computed with, and in which order.
std::pair<bool, std::int32_t> pass_of(const Envelope& question) {
  const auto& dispatch = std::get<Dispatch>(*question.message);
  return {!dispatch.express, dispatch.layer};
}

}  // namespace

/// Questions of one layer in the pool, of express steps or of others. Their answers are written in
/// place.
struct ForwardPass::Asked final : ExpertWork, std::enable_shared_from_this<Asked> {
  explicit Asked(ForwardPass& p) : pass(p) {}
  void computed(const Status& done) override {
    const Status fetched =
        done.ok() ? guarded(pass.device_, "A question", [this] { return fetch(); }) : done;
    if (!fetched.ok())
      for (PassAnswer& found : answers)
        found = not_here(found.question, {}, fetched.error().message);
    const auto told = std::move(news);
    auto found = std::exchange(answers, {});
    rows.clear();
    ids.clear();
    outputs.clear();
    parts.clear();
    pass.spare_for(express).push_back(shared_from_this());
    told->answered(std::move(found));  // `told` has the pass, which may end with it
  }

  /// The outputs, from where ops wrote them.
  Status fetch() {
    kernels::Stream& stream = pass.experts_->stream();
    for (const Part& part : parts) stream.fetch(part.buffer, part.outputs, part.buffer->size());
    stream.wait();
    return {};
  }

  /// Of a question, where ops reach what came and what goes.
  struct Rooms {
    kernels::Stream::Room rows, outputs;
  };

  ForwardPass& pass;
  std::shared_ptr<PassNews> news;
  struct Part {
    std::shared_ptr<Buffer> buffer;
    const std::byte* outputs;  ///< where ops write them
  };
  std::vector<Part> parts;  ///< by answer
  std::deque<Rooms> rooms;  ///< the same, and more
  std::vector<PassAnswer> answers;
  std::vector<const std::byte*> rows;
  std::vector<std::int32_t> ids;
  std::vector<std::byte*> outputs;
};

ForwardPass::ForwardPass(std::shared_ptr<const ModelSpec> model, Numerics numerics,
                         CpuDevice& device, std::shared_ptr<ExpertForward> experts)
    : model_(std::move(model)),
      row_bytes_(row_bytes(*model_, numerics)),
      device_(device),
      experts_(std::move(experts)) {}

void ForwardPass::run(std::span<Envelope> questions, const std::shared_ptr<PassNews>& news) {
  std::ranges::sort(questions, {}, pass_of);
  while (!questions.empty()) {
    const auto end = std::ranges::upper_bound(questions, pass_of(questions.front()), {}, pass_of);
    const auto asked = questions.first(static_cast<std::size_t>(end - questions.begin()));
    questions = questions.subspan(asked.size());
    const Status done = guarded(device_, "A question", [&] {
      ask(asked, news);
      return Status();
    });
    if (done.ok()) continue;
    std::vector<PassAnswer> refused;
    for (const auto& question : asked)
      refused.push_back(not_here(question, {}, done.error().message));
    news->answered(std::move(refused));
  }
}

std::shared_ptr<ForwardPass::Asked> ForwardPass::take_spare(bool express) {
  auto& spare = spare_for(express);
  if (spare.empty()) return std::make_shared<Asked>(*this);
  auto asked = std::move(spare.back());
  spare.pop_back();
  return asked;
}

void ForwardPass::ask(std::span<const Envelope> questions, const std::shared_ptr<PassNews>& news) {
  const auto& first = std::get<Dispatch>(*questions.front().message);
  const std::int32_t layer = first.layer;
  const auto asked = take_spare(first.express);
  asked->express = first.express;
  asked->answers.reserve(questions.size());
  asked->set = device_.experts();
  std::vector<PassAnswer> refused;
  for (const auto& question : questions) {
    const auto& dispatch = std::get<Dispatch>(*question.message);
    std::vector<std::int32_t> absent;
    for (const auto& pair : dispatch.pairs)
      if (!asked->set->has({layer, pair.expert})) absent.push_back(pair.expert);
    if (!absent.empty()) {
      refused.push_back(not_here(question, std::move(absent), "this device does not hold them"));
      continue;
    }
    kernels::Stream& stream = experts_->stream();
    auto buffer = stream.host_buffer(dispatch.pairs.size() * row_bytes_);
    const std::size_t number = asked->parts.size();
    if (asked->rooms.size() == number) asked->rooms.emplace_back();
    Asked::Rooms& rooms = asked->rooms[number];
    const std::byte* const rows = stream.reach(dispatch.payload, rooms.rows);
    std::byte* const outputs = stream.target(*buffer, rooms.outputs);
    asked->parts.push_back({buffer, outputs});
    for (std::size_t i = 0; i < dispatch.pairs.size(); ++i) {
      asked->rows.push_back(rows + dispatch.pairs[i].row * row_bytes_);
      asked->ids.push_back(dispatch.pairs[i].expert);
      asked->outputs.push_back(outputs + i * row_bytes_);
    }
    ExpertOutput output{dispatch.call, static_cast<std::uint32_t>(dispatch.pairs.size()),
                        Payload::of(std::move(buffer))};
    asked->answers.push_back({question, message_of(std::move(output))});
  }
  if (asked->answers.empty()) {
    asked->set.reset();
    spare_for(asked->express).push_back(asked);
  } else {
    asked->news = news;
    asked->arithmetic = experts_.get();
    asked->pairs = {layer, asked->rows, asked->ids, asked->outputs};
    device_.pool().join(*asked, asked);
  }
  if (!refused.empty()) news->answered(std::move(refused));
}

}  // namespace troupe
