#include "model/grammar/answer_grammars.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "runtime/clock.h"
#include "runtime/limits.h"

namespace troupe {

AnswerGrammars::AnswerGrammars(Words words)
    : words_(std::move(words)), jobs_(limits::kGrammarsWaitingMax) {}

AnswerGrammars::~AnswerGrammars() { jobs_.end(); }

/// What the queue has no room for is asked for again. Those that wait are not forgotten: they would
/// be compiled for nobody.
std::shared_future<AnswerGrammars::Grammar> AnswerGrammars::begin(const std::string& text) {
  const std::lock_guard lock(mutex_);
  const auto found = kept_.find(text);
  if (found != kept_.end()) {
    found->second.used = ++calls_;
    return found->second.compiled;
  }
  if (kept_.size() >= limits::kGrammarsKeptMax)
    kept_.erase(
        std::ranges::min_element(kept_, {}, [](const auto& entry) { return entry.second.used; }));
  auto promise = std::make_shared<std::promise<Grammar>>();
  const std::shared_future<Grammar> compiled = promise->get_future().share();
  const Status added =
      jobs_.add([promise, text] { promise->set_value(CompiledGrammar::compile(text)); });
  if (added.ok())
    kept_.emplace(text, Entry{compiled, ++calls_});
  else
    promise->set_value(unavailable("Too many grammars wait to be compiled; try again."));
  return compiled;
}

}  // namespace troupe
