#include "tests/actors/gateway/fakes.h"

#include <array>

namespace troupe::testing {
namespace {

constexpr TokenId kBos = 256;

const std::array<char, 256>& all_bytes() {
  static const std::array<char, 256> bytes = [] {
    std::array<char, 256> all{};
    for (int i = 0; i < 256; ++i) all[static_cast<std::size_t>(i)] = static_cast<char>(i);
    return all;
  }();
  return bytes;
}

}  // namespace

Result<std::vector<TokenId>> ByteModel::encode(std::string_view text,
                                               bool add_special_tokens) const {
  if (large_go_on.valid() && text.size() > 100'000) large_go_on.wait();
  std::vector<TokenId> ids;
  if (add_special_tokens) ids.push_back(kBos);
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

Result<std::string> ByteModel::decode(std::span<const TokenId> ids) const {
  std::string text;
  for (const TokenId id : ids) {
    if (id < 0 || id > kBos)
      return invalid_argument("tokens: " + std::to_string(id) + " is no token.");
    text += token_bytes(id);
  }
  return text;
}

std::string_view ByteModel::token_bytes(TokenId id) const {
  if (id == kBos) return "<s>";
  if (!tokenizer || id < 0 || id > 255) return "";
  return std::string_view(&all_bytes()[static_cast<std::size_t>(id)], 1);
}

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
  for (auto& [id, job] : jobs_) job.script.wait_to_fail = false;
  changed_.notify_all();
}

Result<std::uint64_t> FakeService::submit(GenerationRequest request,
                                          std::shared_ptr<GenerationSink> sink) {
  std::lock_guard lock(mutex_);
  seen_.push_back(request);
  if (script_.refuse) return *script_.refuse;
  Job job{.request = std::move(request), .sink = std::move(sink), .prompt = {}, .script = script_};
  if (const auto* ids = std::get_if<std::vector<TokenId>>(&job.request.prompt)) job.prompt = *ids;
  if (const auto* text = std::get_if<std::string>(&job.request.prompt)) {
    job.prompt = model_.encode(*text, job.request.add_special_tokens).value();
  }
  if (std::get_if<std::vector<ChatMessage>>(&job.request.prompt) != nullptr)
    job.prompt = {kBos, 1, 2};
  const std::uint64_t id = next_id_++;
  jobs_.emplace(id, std::move(job));
  changed_.notify_all();
  return id;
}

void FakeService::cancel(std::uint64_t request) {
  std::lock_guard lock(mutex_);
  cancelled_ += jobs_.erase(request);
  changed_.notify_all();
}

std::size_t FakeService::running() const {
  std::lock_guard lock(mutex_);
  return jobs_.size();
}

std::size_t FakeService::cancelled() const {
  std::lock_guard lock(mutex_);
  return cancelled_;
}

std::vector<GenerationRequest> FakeService::seen() const {
  std::lock_guard lock(mutex_);
  return seen_;
}

bool FakeService::wait_running(std::size_t count) const {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, std::chrono::seconds(10), [&] { return jobs_.size() == count; });
}

bool FakeService::advance(Job& job) {
  const GenerationRequest& request = job.request;
  const Script& script = job.script;
  const auto event_of = [&](std::uint32_t choice) {
    GenerationEvent event;
    event.choice = choice;
    if (job.step > 0 || choice > 0) return event;
    event.prompt_tokens = job.prompt;
    for (std::size_t i = 1; request.prompt_logprobs >= 0 && i < job.prompt.size(); ++i) {
      event.prompt_logprobs.push_back({.token = job.prompt[i], .logprob = -0.5f, .top = {}});
    }
    return event;
  };
  if (script.fail && job.step == script.fail_at) {
    GenerationEvent event = event_of(0);
    event.error = script.fail;
    job.sink->on_event(std::move(event));
    return true;
  }
  const std::uint32_t length =
      request.max_tokens.value_or(static_cast<std::uint32_t>(script.text.size()));
  const bool last = job.step + 1 >= length;  // A prompt without an answer has one empty event.
  for (std::uint32_t choice = 0; choice < request.n; ++choice) {
    GenerationEvent event = event_of(choice);
    const char c = script.text[job.step % script.text.size()];
    if (length == 0) {
      event.finish = FinishReason::kLength;
      event.request_done = choice + 1 == request.n;
      job.sink->on_event(std::move(event));
      continue;
    }
    TokenOutput token{.token = static_cast<unsigned char>(c),
                      .logprob = -0.1f * static_cast<float>(job.step + 1),
                      .top = {}};
    for (std::int32_t k = 0; k < request.logprobs; ++k) {
      token.top.push_back(
          {.token = token.token + k, .logprob = token.logprob - static_cast<float>(k)});
    }
    event.tokens.push_back(std::move(token));
    if (model_.has_tokenizer()) event.text = std::string(1, c);
    if (last) event.finish = request.max_tokens ? FinishReason::kLength : FinishReason::kStop;
    event.request_done = last && choice + 1 == request.n;
    job.sink->on_event(std::move(event));
  }
  ++job.step;
  return last;
}

void FakeService::run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    std::chrono::microseconds tick{0};
    bool active = false;
    std::vector<std::shared_ptr<GenerationSink>> over;  // Released without the lock.
    for (auto it = jobs_.begin(); it != jobs_.end();) {
      Job& job = it->second;
      if (job.script.hold || (job.script.wait_to_fail && job.step == job.script.fail_at)) {
        ++it;
        continue;
      }
      active = true;
      tick = std::max(tick, job.script.tick);
      if (advance(job)) {
        over.push_back(std::move(job.sink));
        it = jobs_.erase(it);
        changed_.notify_all();
      } else {
        ++it;
      }
    }
    if (!over.empty()) {
      lock.unlock();
      over.clear();
      lock.lock();
    }
    if (!active) {
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
