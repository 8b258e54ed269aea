#include "actors/api/cluster.h"

#include <future>

#include "actors/api/operation.h"
#include "runtime/limits.h"

namespace troupe {
namespace {

class CallbackSink : public GenerationSink {
 public:
  explicit CallbackSink(std::function<void(const GenerationEvent&)> on_event)
      : on_event_(std::move(on_event)) {}
  void on_event(GenerationEvent event) override { on_event_(event); }

 private:
  std::function<void(const GenerationEvent&)> on_event_;
};

/// Gathers a whole answer. Its events come one after the other.
struct Gathering {
  explicit Gathering(std::uint32_t n) : choices(n) {}

  void add(const GenerationEvent& event) {
    if (over) return;
    over = event.error || event.request_done;
    if (event.error) return done.set_value(*event.error);
    if (!event.prompt_tokens.empty()) answer.prompt_tokens = event.prompt_tokens;
    if (!event.hidden.empty()) answer.hidden = event.hidden;
    if (!event.prompt_logprobs.empty()) answer.prompt_logprobs = event.prompt_logprobs;
    if (event.choice < choices) {
      // Not before the request was found good: `n` may be any number until then.
      if (answer.choices.empty()) answer.choices.resize(choices);
      Completion& choice = answer.choices[event.choice];
      choice.text += event.text;
      choice.tokens.insert(choice.tokens.end(), event.tokens.begin(), event.tokens.end());
      if (event.finish != FinishReason::kNone) choice.finish = event.finish;
    }
    answer.timing = event.timing;
    if (event.request_done) done.set_value(std::move(answer));
  }

  const std::uint32_t choices;
  bool over = false;
  Generation answer;
  std::promise<Result<Generation>> done;
};

}  // namespace

std::uint64_t Cluster::Endings::add(std::function<void()> work) {
  std::lock_guard lock(mutex_);
  waiting_[++last_] = std::move(work);
  return last_;
}

void Cluster::Endings::remove(std::uint64_t number) {
  std::lock_guard lock(mutex_);
  waiting_.erase(number);
}

void Cluster::Endings::run() {
  std::map<std::uint64_t, std::function<void()>> now;
  {
    std::lock_guard lock(mutex_);
    now.swap(waiting_);
  }
  for (const auto& [number, work] : now) work();
}

Result<Generation> Cluster::generate(GenerationRequest request, OnEvent on_event) {
  auto gathering = std::make_shared<Gathering>(request.n);
  auto future = gathering->done.get_future();
  const auto accepted = stream(std::move(request), [gathering, on_event](const GenerationEvent& e) {
    if (on_event) on_event(e);
    gathering->add(e);
  });
  if (!accepted.ok()) return accepted.error();
  // The Router ends every accepted request, by its deadline at the latest. A head that hangs does
  // not: so a long silence is broken by asking for the status, which has a deadline.
  while (future.wait_for(limits::kRouterAnswerDeadline) != std::future_status::ready) {
    const auto alive = status_json();
    if (alive.ok()) continue;
    cancel(*accepted);
    return alive.error();
  }
  return future.get();
}

Result<std::uint64_t> Cluster::stream(GenerationRequest request, OnEvent on_event) {
  if (!on_event) return invalid_argument("stream() needs a callback for the events.");
  const auto accepted =
      service().submit(std::move(request), std::make_shared<CallbackSink>(std::move(on_event)));
  if (!accepted.ok()) return accepted.error();
  return accepted->reader;
}

template <class Query>
Result<std::string> Cluster::operate_with(Query query, const OnProgress& on_progress) {
  return operate([&](ClientSession& session) { return session.send(std::move(query)); },
                 [&](const OperationProgress& news) {
                   if (on_progress) on_progress({news.done, news.total, news.text});
                 });
}

Result<std::string> Cluster::drain(NodeId node, const OnProgress& on_progress) {
  return operate_with(DrainQuery{kOperationQuery, node}, on_progress);
}

Result<std::string> Cluster::rebalance(const OnProgress& on_progress) {
  return operate_with(RebalanceQuery{kOperationQuery}, on_progress);
}

}  // namespace troupe
