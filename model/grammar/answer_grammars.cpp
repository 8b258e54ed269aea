#include "model/grammar/answer_grammars.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "runtime/clock.h"
#include "runtime/limits.h"

namespace troupe {

namespace {

bool is_ready(const std::shared_future<AnswerGrammars::Grammar>& compiled) {
  return compiled.wait_for(Duration::zero()) == std::future_status::ready;
}

/// 0 while it is compiled.
std::size_t bytes_of(const std::shared_future<AnswerGrammars::Grammar>& compiled) {
  if (!is_ready(compiled)) return 0;
  return compiled.get().ok() ? (*compiled.get())->bytes() : 0;
}

}  // namespace

AnswerGrammars::AnswerGrammars(Words words, std::size_t kept_bytes_max)
    : words_(std::move(words)),
      kept_bytes_max_(kept_bytes_max),
      jobs_(limits::kGrammarsWaitingMax),
      large_jobs_(limits::kGrammarsWaitingMax, kLargeNice) {}

AnswerGrammars::~AnswerGrammars() {
  jobs_.end();
  large_jobs_.end();
}

/// What the queue has no room for is asked for again. Those that wait are not forgotten: they would
/// be compiled for nobody.
std::shared_future<AnswerGrammars::Grammar> AnswerGrammars::begin(const std::string& text) {
  const std::lock_guard lock(mutex_);
  const auto found = kept_.find(text);
  if (found != kept_.end()) {
    found->second.used = ++calls_;
    return found->second.compiled;
  }
  make_room();
  auto promise = std::make_shared<std::promise<Grammar>>();
  const std::shared_future<Grammar> compiled = promise->get_future().share();
  JobQueue& jobs = text.size() > limits::kSmallGrammarBytesMax ? large_jobs_ : jobs_;
  const Status added =
      jobs.add([promise, text] { promise->set_value(CompiledGrammar::compile(text)); });
  if (added.ok())
    kept_.emplace(text, Entry{compiled, ++calls_});
  else
    promise->set_value(unavailable("Too many grammars wait to be compiled; try again."));
  return compiled;
}

void AnswerGrammars::make_room() {
  std::size_t bytes = 0;
  for (const auto& [text, entry] : kept_) bytes += text.size() + bytes_of(entry.compiled);
  while (kept_.size() >= limits::kGrammarsKeptMax || bytes > kept_bytes_max_) {
    auto oldest = kept_.end();
    for (auto it = kept_.begin(); it != kept_.end(); ++it)
      if (is_ready(it->second.compiled) &&
          (oldest == kept_.end() || it->second.used < oldest->second.used))
        oldest = it;
    if (oldest == kept_.end()) return;
    bytes -= std::min(bytes, oldest->first.size() + bytes_of(oldest->second.compiled));
    kept_.erase(oldest);
  }
}

}  // namespace troupe
