#include <algorithm>

#include "tests/actors/gateway/fakes.h"
#include "tests/patience.h"

namespace troupe::testing {

constexpr auto kPatience = kTestPatience;

FakeService::~FakeService() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void FakeService::set(Script script) {
  std::lock_guard lock(mutex_);
  script_ = std::move(script);
}

void FakeService::go_on() {
  std::lock_guard lock(mutex_);
  for (auto& [id, job] : jobs_) {
    job.script.wait_to_fail = false;
    job.script.wait_at.reset();
  }
  changed_.notify_all();
}

Result<AcceptedRequest> FakeService::submit(GenerationRequest request,
                                            std::shared_ptr<GenerationSink> sink) {
  std::lock_guard lock(mutex_);
  seen_.push_back(request);
  const auto& name = request.name;
  for (auto& [number, job] : jobs_) {
    const auto& known = job.request.name;
    if (!name || name->key.empty() || !known || known->key != name->key ||
        known->owner != name->owner)
      continue;
    if (known->body != name->body)
      return invalid_argument("Idempotency-Key: it was used for another question.");
    if (known->index == name->index) return read(job, {}, true, std::move(sink));
  }
  if (script_.refuse && (!name || name->index >= script_.refuse_from)) return *script_.refuse;
  Job job;
  job.request = std::move(request);
  job.script = script_;
  if (const auto* ids = std::get_if<std::vector<TokenId>>(&job.request.prompt)) job.prompt = *ids;
  if (const auto* text = std::get_if<std::string>(&job.request.prompt)) {
    job.prompt = model_.encode(*text, job.request.add_special_tokens).value();
  }
  if (std::get_if<std::vector<ChatMessage>>(&job.request.prompt) != nullptr)
    job.prompt = {256, 1, 2};
  Job& kept = jobs_.emplace(next_id_++, std::move(job)).first->second;
  changed_.notify_all();
  return read(kept, {}, true, std::move(sink));
}

AcceptedRequest FakeService::read(Job& job, std::vector<std::uint32_t> from, bool follow,
                                  std::shared_ptr<GenerationSink> sink) {
  from.resize(job.request.n);
  Reader reader{std::move(sink), std::move(from)};
  for (std::uint32_t step = 0; step < job.step; ++step) tell(job, reader, step);
  const AcceptedRequest accepted{next_id_++, job.request.name, 1000};
  if (job.ended || !follow) {
    tell_end(job, reader);
    over_.push_back(std::move(reader.sink));
  } else {
    job.readers.emplace(accepted.reader, std::move(reader));
  }
  changed_.notify_all();
  return accepted;
}

void FakeService::cancel(std::uint64_t number) {
  std::lock_guard lock(mutex_);
  for (auto& [id, job] : jobs_) {
    const auto reader = job.readers.find(number);
    if (reader == job.readers.end()) continue;
    over_.push_back(std::move(reader->second.sink));
    job.readers.erase(reader);
    ++cancelled_;
    const bool has_key = job.request.name && !job.request.name->key.empty();
    if (job.readers.empty() && !has_key) end(job, troupe::cancelled("Nobody reads it."));
  }
  changed_.notify_all();
}

Result<std::vector<NamedRequest>> FakeService::find(const std::string& id, std::uint64_t owner) {
  std::lock_guard lock(mutex_);
  ++asked_;
  changed_.notify_all();
  std::vector<NamedRequest> prompts;
  for (const auto& [number, job] : jobs_) {
    if (!job.request.name || job.request.name->id != id || job.request.name->owner != owner)
      continue;
    using State = NamedRequest::State;
    NamedRequest prompt{job.request.name, job.step > 0 ? State::kRunning : State::kQueued, 1000};
    prompt.kept = job.script.kept;
    prompt.streams = job.request.streams;
    prompt.max_tokens = job.length();
    if (job.ended) prompt.state = job.error ? State::kFailed : State::kFinished;
    prompts.resize(std::max<std::size_t>(prompts.size(), prompt.name->index + 1));
    prompts[prompt.name->index] = prompt;
  }
  if (prompts.empty()) return not_found("There is no such request.");
  return prompts;
}

Result<std::vector<NamedRequest>> FakeService::find_key(const std::string& key,
                                                        std::uint64_t owner) {
  std::string id;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [number, job] : jobs_) {
      const auto& name = job.request.name;
      if (name && name->key == key && name->owner == owner && !job.error) id = name->id;
    }
  }
  return find(id, owner);
}

FakeService::Job* FakeService::named(const std::string& id, std::uint64_t owner,
                                     std::uint32_t index) {
  for (auto& [number, job] : jobs_) {
    const auto& name = job.request.name;
    if (name && name->id == id && name->owner == owner && name->index == index) return &job;
  }
  return nullptr;
}

Result<AcceptedRequest> FakeService::attach(const RequestWanted& wanted,
                                            std::shared_ptr<GenerationSink> sink) {
  std::lock_guard lock(mutex_);
  Job* const job = named(wanted.id, wanted.owner, wanted.index);
  if (job == nullptr) return not_found("There is no such request.");
  return read(*job, wanted.from, wanted.follow, std::move(sink));
}

Status FakeService::forget(const std::string& id, std::uint64_t owner) {
  std::lock_guard lock(mutex_);
  bool found = false;
  for (auto it = jobs_.begin(); it != jobs_.end();) {
    const auto& name = it->second.request.name;
    if (!name || name->id != id || name->owner != owner) {
      ++it;
      continue;
    }
    found = true;
    if (!it->second.ended) end(it->second, troupe::cancelled("It was deleted."));
    it = jobs_.erase(it);
  }
  changed_.notify_all();
  if (!found) return not_found("There is no such request.");
  return {};
}

void FakeService::spoil(const std::string& id, const std::string& form) {
  std::lock_guard lock(mutex_);
  for (auto& [number, job] : jobs_) {
    if (!job.request.name || job.request.name->id != id) continue;
    RequestName name = *job.request.name;
    name.form = form;
    job.request.name = std::make_shared<const RequestName>(std::move(name));
  }
}

void FakeService::lose(const std::string& id, std::uint32_t index) {
  std::lock_guard lock(mutex_);
  std::erase_if(jobs_, [&](const auto& job) {
    const auto& name = job.second.request.name;
    return name && name->id == id && name->index == index;
  });
}

std::size_t FakeService::running() const {
  std::lock_guard lock(mutex_);
  return static_cast<std::size_t>(
      std::count_if(jobs_.begin(), jobs_.end(), [](const auto& job) { return !job.second.ended; }));
}

std::size_t FakeService::cancelled() const {
  std::lock_guard lock(mutex_);
  return cancelled_;
}

std::size_t FakeService::asked() const {
  std::lock_guard lock(mutex_);
  return asked_;
}

std::size_t FakeService::kept() const {
  std::lock_guard lock(mutex_);
  return jobs_.size();
}

std::vector<GenerationRequest> FakeService::seen() const {
  std::lock_guard lock(mutex_);
  return seen_;
}

bool FakeService::wait_running(std::size_t count) const {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, kPatience, [&] {
    const auto runs = [](const auto& job) { return !job.second.ended; };
    return static_cast<std::size_t>(std::count_if(jobs_.begin(), jobs_.end(), runs)) == count;
  });
}

bool FakeService::wait_readers(std::size_t count) const {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, kPatience, [&] {
    std::size_t readers = 0;
    for (const auto& [number, job] : jobs_) readers += job.readers.size();
    return readers == count;
  });
}

bool FakeService::wait_cancelled(std::size_t count) const {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, kPatience, [&] { return cancelled_ == count; });
}

bool FakeService::wait_asked(std::size_t count) const {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, kPatience, [&] { return asked_ >= count; });
}

bool FakeService::wait_waiting() const {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, kPatience, [&] {
    return std::any_of(jobs_.begin(), jobs_.end(),
                       [](const auto& job) { return !job.second.ended && job.second.waits(); });
  });
}

bool FakeService::Job::ends_itself() const {
  if (!std::holds_alternative<std::vector<ChatMessage>>(request.prompt)) return false;
  return !request.max_tokens || (script.stops && *request.max_tokens >= script.text.size());
}

std::uint32_t FakeService::Job::length() const {
  if (ends_itself()) return static_cast<std::uint32_t>(script.text.size());
  return request.max_tokens.value_or(kCompletionTokens);
}

bool FakeService::Job::waits() const {
  return script.hold || (script.wait_to_fail && step == script.fail_at) || script.wait_at == step;
}

GenerationEvent FakeService::event_at(const Job& job, std::uint32_t choice,
                                      std::uint32_t step) const {
  const GenerationRequest& request = job.request;
  const char c = job.script.text[step % job.script.text.size()];
  GenerationEvent event;
  event.choice = choice;
  TokenOutput token{.token = static_cast<unsigned char>(c),
                    .logprob = -0.1f * static_cast<float>(step + 1),
                    .top = {}};
  for (std::int32_t k = 0; k < request.logprobs; ++k) {
    token.top.push_back(
        {.token = token.token + k, .logprob = token.logprob - static_cast<float>(k)});
  }
  event.tokens.push_back(std::move(token));
  if (model_.has_tokenizer()) event.text = std::string(1, c);
  if (step + 1 >= job.length())
    event.finish = job.ends_itself() ? FinishReason::kStop : FinishReason::kLength;
  return event;
}

namespace {

/// The first event has the prompt.
void add_prompt(GenerationEvent& event, const GenerationRequest& request,
                const std::vector<TokenId>& prompt) {
  event.prompt_tokens = prompt;
  for (std::size_t i = 1; request.prompt_logprobs >= 0 && i < prompt.size(); ++i)
    event.prompt_logprobs.push_back({.token = prompt[i], .logprob = -0.5f, .top = {}});
}

}  // namespace

void FakeService::tell(const Job& job, Reader& reader, std::uint32_t step) const {
  const bool last = step + 1 >= job.length();
  for (std::uint32_t choice = 0; choice < job.request.n; ++choice) {
    if (step < reader.from[choice]) continue;
    GenerationEvent event = event_at(job, choice, step);
    if (!std::exchange(reader.begun, true)) add_prompt(event, job.request, job.prompt);
    event.request_done = last && choice + 1 == job.request.n;
    reader.sink->on_event(std::move(event));
  }
}

/// Where tell() has not told the end: of an error, of what goes on, of what the reader has.
void FakeService::tell_end(const Job& job, Reader& reader) const {
  const bool finished = job.ended && !job.error;
  for (std::uint32_t choice = 0; choice < job.request.n; ++choice) {
    const bool last = choice + 1 == job.request.n;
    const bool told = finished && job.length() > 0 && reader.from[choice] < job.length();
    if (told || (!finished && !last)) continue;
    GenerationEvent event;
    event.choice = choice;
    if (!std::exchange(reader.begun, true)) add_prompt(event, job.request, job.prompt);
    if (finished) event.finish = job.ends_itself() ? FinishReason::kStop : FinishReason::kLength;
    event.request_done = last;
    event.error = job.error;
    reader.sink->on_event(std::move(event));
  }
}

void FakeService::end(Job& job, std::optional<Error> error) {
  job.ended = true;
  job.error = std::move(error);
  for (auto& [number, reader] : job.readers) {
    tell_end(job, reader);
    over_.push_back(std::move(reader.sink));
  }
  job.readers.clear();
}

void FakeService::advance(Job& job) {
  if (job.script.fail && job.step == job.script.fail_at) return end(job, job.script.fail);
  if (job.length() == 0) return end(job, std::nullopt);  // A prompt without an answer.
  for (auto& [number, reader] : job.readers) tell(job, reader, job.step);
  if (++job.step >= job.length()) end(job, std::nullopt);
}

void FakeService::run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    std::chrono::microseconds tick{0};
    bool active = false;
    for (auto it = jobs_.begin(); it != jobs_.end();) {
      Job& job = it->second;
      if (!job.ended && !job.waits()) {
        active = true;
        tick = std::max(tick, job.script.tick);
        advance(job);
        if (job.ended || job.waits()) changed_.notify_all();
      }
      it = job.ended && !job.request.name ? jobs_.erase(it) : std::next(it);
    }
    if (!over_.empty()) {
      auto over = std::exchange(over_, {});
      lock.unlock();
      over.clear();
      lock.lock();
    } else if (!active) {
      changed_.wait(lock);
    } else if (tick.count() > 0) {
      changed_.wait_for(lock, tick);
    } else {
      lock.unlock();
      std::this_thread::yield();
      lock.lock();
    }
  }
}

}  // namespace troupe::testing
