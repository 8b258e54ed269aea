#include "actors/api/cluster.h"

#include <future>
#include <mutex>

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
  explicit Gathering(std::uint32_t n) { answer.choices.resize(n); }

  void add(const GenerationEvent& event) {
    if (event.error) return done.set_value(*event.error);
    if (!event.prompt_tokens.empty()) answer.prompt_tokens = event.prompt_tokens;
    if (!event.prompt_logprobs.empty()) answer.prompt_logprobs = event.prompt_logprobs;
    if (event.choice < answer.choices.size()) {
      Completion& choice = answer.choices[event.choice];
      choice.text += event.text;
      choice.tokens.insert(choice.tokens.end(), event.tokens.begin(), event.tokens.end());
      if (event.finish != FinishReason::kNone) choice.finish = event.finish;
    }
    answer.timing = event.timing;
    if (event.request_done) done.set_value(std::move(answer));
  }

  Generation answer;
  std::promise<Result<Generation>> done;
};

}  // namespace

Result<Generation> Cluster::generate(GenerationRequest request, OnEvent on_event) {
  auto gathering = std::make_shared<Gathering>(request.n);
  auto future = gathering->done.get_future();
  const auto accepted = stream(std::move(request), [gathering, on_event](const GenerationEvent& e) {
    if (on_event) on_event(e);
    gathering->add(e);
  });
  if (!accepted.ok()) return accepted.error();
  return future.get();  // the Router ends every accepted request, by its deadline at the latest
}

Result<std::uint64_t> Cluster::stream(GenerationRequest request, OnEvent on_event) {
  return service().submit(std::move(request), std::make_shared<CallbackSink>(std::move(on_event)));
}

}  // namespace troupe
