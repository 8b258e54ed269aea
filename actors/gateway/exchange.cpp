#include "actors/gateway/exchange.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <iterator>
#include <random>
#include <utility>

#include "runtime/limits.h"

namespace troupe {
namespace {

std::string new_answer_id(bool chat) {
  std::random_device random;
  char text[48];
  std::snprintf(text, sizeof text, "%s-%08x%08x%08x", chat ? "chatcmpl" : "cmpl", random(),
                random(), random());
  return text;
}

std::int64_t unix_time_s() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(since).count();
}

std::size_t bytes_of(const GenerationEvent& event) {
  std::size_t bytes = event.text.size();
  for (const TokenOutput& token : event.tokens) {
    bytes += sizeof token + token.top.size() * sizeof(TokenLogprob);
  }
  return bytes;
}

/// `next` follows `event` in the same choice.
void append(GenerationEvent& event, GenerationEvent next) {
  event.text += next.text;
  std::move(next.tokens.begin(), next.tokens.end(), std::back_inserter(event.tokens));
  if (next.finish != FinishReason::kNone) event.finish = next.finish;
  if (!next.prompt_tokens.empty()) event.prompt_tokens = std::move(next.prompt_tokens);
  if (!next.prompt_logprobs.empty()) event.prompt_logprobs = std::move(next.prompt_logprobs);
  event.timing = next.timing;
}

}  // namespace

/// What the service holds; it keeps the exchange alive as long as events may come.
class Exchange::Sink : public GenerationSink {
 public:
  Sink(std::shared_ptr<Exchange> exchange, std::size_t prompt)
      : exchange_(std::move(exchange)), prompt_(prompt) {}
  void on_event(GenerationEvent event) override { exchange_->on_event(prompt_, std::move(event)); }

 private:
  std::shared_ptr<Exchange> exchange_;
  std::size_t prompt_;
};

Exchange::Exchange(GenerationService& service, const GatewayModel& model,
                   std::size_t unsent_bytes_max, AnswerRoom& room, std::function<void()> wake)
    : service_(service),
      model_(model),
      unsent_bytes_max_(unsent_bytes_max),
      room_(room),
      wake_(std::move(wake)) {}

std::optional<ApiError> Exchange::submit(ApiRequest request) {
  stream_ = request.stream;
  if (auto error = reserve(request)) return error;
  answer_ = std::make_unique<Answer>(request, model_, new_answer_id(request.chat), unix_time_s());
  {
    std::lock_guard lock(mutex_);
    n_ = request.n();
    pending_of_.assign(request.prompts.size() * n_, -1);
    running_.resize(request.prompts.size());
    ended_.resize(request.prompts.size());
  }
  for (std::size_t i = 0; i < request.prompts.size(); ++i) {
    GenerationRequest& generation = request.prompts[i];
    generation.streams = request.stream;
    const auto sink = std::make_shared<Sink>(shared_from_this(), i);
    const Result<std::uint64_t> id = service_.submit(std::move(generation), sink);
    if (!id) {
      cancel();
      return to_api_error(id.error());
    }
    bool gone = false;
    {
      std::lock_guard lock(mutex_);
      running_[i] = *id;
      gone = closed_;
    }
    if (gone) {  // The client left meanwhile; cancel() did not know this id yet.
      service_.cancel(*id);
      return to_api_error(cancelled("The client closed the connection."));
    }
  }
  return std::nullopt;
}

std::optional<ApiError> Exchange::reserve(const ApiRequest& request) {
  std::lock_guard lock(mutex_);
  if (closed_) return to_api_error(cancelled("The client closed the connection."));
  return room_.take(request, model_.max_model_len(), kept_bytes_);
}

void Exchange::put(std::size_t prompt, GenerationEvent event) {
  pending_bytes_ += bytes_of(event);
  const std::size_t choice = prompt * n_ + event.choice;
  std::ptrdiff_t& place = pending_of_[choice];
  // The request's end must stay behind the other choices' news, and an error behind everything.
  if (place >= 0 && !event.request_done && !event.error) {
    append(pending_[static_cast<std::size_t>(place)].event, std::move(event));
    return;
  }
  place = static_cast<std::ptrdiff_t>(pending_.size());
  pending_.push_back({prompt, std::move(event)});
}

void Exchange::on_event(std::size_t prompt, GenerationEvent event) {
  std::lock_guard lock(mutex_);
  if (event.request_done || event.error) ended_[prompt] = true;
  if (closed_ || too_slow_ || event.choice >= n_) return;
  if (!stream_) {
    kept_bytes_ += event.text.size();
    room_.add(event.text.size());
  }
  put(prompt, std::move(event));
  if (stream_ && pending_bytes_ > unsent_bytes_max_) {
    too_slow_ = true;
    pending_.clear();
    woken_ = false;  // The connection may be stuck in a write: it must hear of this.
  }
  if (woken_ || !wake_) return;
  woken_ = true;
  wake_();
}

bool Exchange::too_slow() {
  std::lock_guard lock(mutex_);
  return too_slow_;
}

Exchange::News Exchange::take() {
  News news;
  {
    std::lock_guard lock(mutex_);
    woken_ = false;
    std::move(pending_.begin(), pending_.end(), std::back_inserter(taken_));
    pending_.clear();
    pending_of_.assign(pending_of_.size(), -1);
    pending_bytes_ -= std::exchange(told_bytes_, 0);
  }
  // One batch may hold the beginnings of many choices, each with the prompt that it echoes.
  while (!taken_.empty() && news.bytes.size() < limits::kHttpPieceBytes) {
    Pending item = std::move(taken_.front());
    taken_.pop_front();
    told_bytes_ += bytes_of(item.event);
    if (item.event.error) {
      news.error = to_api_error(*item.event.error);
      cancel();
      return news;
    }
    answer_->add(item.prompt, std::move(item.event), news.bytes);
  }
  news.done = answer_->complete();
  if (news.done && stream_) news.bytes += answer_->stream_end();
  return news;
}

void Exchange::cancel() {
  std::vector<std::uint64_t> running;
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
    wake_ = nullptr;
    pending_.clear();
    room_.give_back(std::exchange(kept_bytes_, 0));
    for (std::size_t i = 0; i < running_.size(); ++i) {
      if (running_[i] && !ended_[i]) running.push_back(*running_[i]);
      running_[i].reset();
    }
  }
  for (const std::uint64_t id : running) service_.cancel(id);
}

}  // namespace troupe
