#include "actors/gateway/exchange.h"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <random>
#include <tuple>
#include <utility>

#include "actors/gateway/request_form.h"
#include "runtime/in_hand.h"
#include "runtime/limits.h"

namespace troupe {
namespace {

Result<std::vector<std::string>> forms_of(const ApiRequest& request) {
  std::vector<std::string> forms;
  for (std::size_t i = 0; i < request.prompts.size(); ++i)
    if (forms.push_back(write_form(request, i)); forms.back().size() > kFormBytesMax)
      return invalid_argument("With what is echoed, its tools and its formats the request has " +
                              std::to_string(forms.back().size()) +
                              " bytes that would be kept; at most " +
                              std::to_string(kFormBytesMax) + " can be.");
  return forms;
}

/// With 128 random bits: nobody guesses another's.
std::string new_answer_id(const ApiRequest& request) {
  std::random_device random;
  char text[48];
  const char* const kind = request.response            ? "resp_"
                           : request.message           ? "msg_"
                           : request.chat              ? "chatcmpl-"
                           : !request.pooled           ? "cmpl-"
                           : request.pooled->embedding ? "embd-"
                                                       : "pool-";
  std::snprintf(text, sizeof text, "%s%08x%08x%08x%08x", kind, random(), random(), random(),
                random());
  return text;
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
  if (!next.hidden.empty()) event.hidden = std::move(next.hidden);
  if (!next.prompt_logprobs.empty()) event.prompt_logprobs = std::move(next.prompt_logprobs);
  event.timing = next.timing;
}

}  // namespace

/// What the service holds; it keeps the exchange alive as long as events may come.
class Exchange::Sink : public GenerationSink {
 public:
  Sink(std::shared_ptr<Exchange> exchange, std::size_t reader)
      : exchange_(std::move(exchange)), reader_(reader) {}
  void on_event(GenerationEvent event) override { exchange_->on_event(reader_, std::move(event)); }

 private:
  std::shared_ptr<Exchange> exchange_;
  std::size_t reader_;
};

Exchange::Exchange(GenerationService& service, NamedRequests& requests, const GatewayModel& model,
                   std::size_t unsent_bytes_max, AnswerRoom& room, std::function<void()> wake)
    : service_(service),
      requests_(requests),
      model_(model),
      unsent_bytes_max_(unsent_bytes_max),
      room_(room),
      wake_(std::move(wake)) {}

std::shared_ptr<GenerationSink> Exchange::sink(std::size_t reader) {
  return std::make_shared<Sink>(shared_from_this(), reader);
}

bool Exchange::is_closed() {
  std::lock_guard lock(mutex_);
  return closed_;
}

std::optional<ApiError> Exchange::submit(ApiRequest request, const Asker& asker) {
  owner_ = asker.owner;
  if (auto error = prepare(request, !asker.key.empty())) return error;
  request.model = model_.served_model_name();
  auto forms = forms_of(request);
  if (!forms) return to_api_error(forms.error());
  const std::string drawn = new_answer_id(request);
  id_ = drawn;
  answer_ = std::make_unique<Answer>(request, model_, drawn, 0);
  std::int64_t created_unix_s = 0;
  for (std::size_t i = 0; i < request.prompts.size(); ++i) {
    GenerationRequest& generation = request.prompts[i];
    generation.name = std::make_shared<const RequestName>(
        RequestName{.id = id_,
                    .index = static_cast<std::uint32_t>(i),
                    .count = static_cast<std::uint32_t>(request.prompts.size()),
                    .owner = asker.owner,
                    .key = asker.key,
                    .body = asker.body,
                    .form = std::move((*forms)[i])});
    generation.streams = request.stream;
    const Result<AcceptedRequest> accepted = service_.submit(std::move(generation), sink(i));
    if (!accepted) {
      cancel();
      // Those before it would be found, and with a key go on, under an id that nobody was told.
      if (i > 0 && id_ == drawn) static_cast<void>(requests_.forget(id_, asker.owner));
      return to_api_error(accepted.error());
    }
    // That of an earlier request with this key, to which prompts that it lacks are then added.
    if (accepted->name) id_ = accepted->name->id;
    if (i == 0) created_unix_s = accepted->unix_ms / 1000;
    if (auto error = keep(i, accepted)) return error;
  }
  answer_->set_name(id_, created_unix_s);
  std::lock_guard lock(mutex_);
  if (id_ == drawn) end_catching_up();  // The key is new: there is nothing to catch up with.
  return std::nullopt;
}

std::optional<ApiError> Exchange::prepare(const ApiRequest& request, bool replayed) {
  std::lock_guard lock(mutex_);
  if (closed_) return to_api_error(cancelled("The client closed the connection."));
  if (auto error = room_.take(request, model_.max_model_len(), kept_bytes_)) return error;
  stream_ = request.stream;
  keeps_text_ = request.response || request.message;
  if (request.response && request.logprobs > 0)
    past_alternatives_ = static_cast<std::size_t>(request.logprobs);
  catching_up_ = stream_ && replayed;
  n_ = request.n();
  prompts_ = request.prompts.size();
  pending_of_.assign(prompts_ * n_, -1);
  begun_.assign(prompts_ * n_, false);
  readers_.resize(2 * prompts_);
  return std::nullopt;
}

std::optional<ApiError> Exchange::keep(std::size_t reader,
                                       const Result<AcceptedRequest>& accepted) {
  if (!accepted) {
    cancel();
    return to_api_error(accepted.error());
  }
  {
    std::lock_guard lock(mutex_);
    readers_[reader].number = accepted->reader;
    if (!closed_) return std::nullopt;
  }
  // The client left meanwhile; cancel() did not know this number yet.
  service_.cancel(accepted->reader);
  return to_api_error(cancelled("The client closed the connection."));
}

void Exchange::put(std::size_t prompt, GenerationEvent event) {
  pending_bytes_ += bytes_of(event);
  const std::size_t choice = prompt * n_ + event.choice;
  begun_[choice] = true;
  std::ptrdiff_t& place = pending_of_[choice];
  // The request's end must stay behind the other choices' news, and an error behind everything.
  if (place >= 0 && !event.request_done && !event.error) {
    append(pending_[static_cast<std::size_t>(place)].event, std::move(event));
    return;
  }
  place = static_cast<std::ptrdiff_t>(pending_.size());
  pending_.push_back({prompt, std::move(event)});
}

void Exchange::on_event(std::size_t reader, GenerationEvent event) {
  std::lock_guard lock(mutex_);
  const bool end = event.request_done || event.error;
  if (end) readers_[reader].ended = true;
  readers_[reader].behind = event.behind && !end;
  if (closed_ || too_slow_ || event.choice >= n_) return;
  if (reader >= prompts_) {
    // What comes behind the past is no news to this reader.
    if (readers_[reader].whole) return;
    put_past(reader - prompts_, std::move(event));
    if (!end && !past_is_whole(reader - prompts_)) return;
    readers_[reader].whole = true;
    if (--pasts_open_ == 0) wake();
    return;
  }
  count_bytes(event);
  put(reader, std::move(event));
  const bool too_much = catching_up_ ? room_.full() : pending_bytes_ > unsent_bytes_max_;
  if (stream_ && too_much) {
    too_slow_ = true;
    pending_.clear();
    woken_ = false;  // The connection may be stuck in a write: it must hear of this.
  }
  wake();
}

void Exchange::count_bytes(const GenerationEvent& event) {
  if (catching_up_) return count_caught(bytes_of(event));
  if (stream_ && !keeps_text_) return;
  const std::size_t bytes = event.text.size() + event.hidden.size() * sizeof(float);
  kept_bytes_ += bytes;
  room_.add(bytes);
}

void Exchange::count_caught(std::size_t bytes) {
  caught_bytes_ += bytes;
  kept_bytes_ += bytes;
  room_.add(bytes);
}

void Exchange::wake() {
  if (woken_ || !wake_) return;
  woken_ = true;
  wake_();
}

bool Exchange::too_slow() {
  std::lock_guard lock(mutex_);
  return too_slow_;
}

void Exchange::end_catching_up() {
  catching_up_ = false;
  room_.give_back(caught_bytes_);
  kept_bytes_ -= std::exchange(caught_bytes_, 0);
}

Exchange::News Exchange::take() {
  const InHand hand(id_);
  News news;
  {
    std::lock_guard lock(mutex_);
    woken_ = false;
    if (pasts_open_ > 0) return news;
    std::move(pending_.begin(), pending_.end(), std::back_inserter(taken_));
    pending_.clear();
    pending_of_.assign(pending_of_.size(), -1);
    pending_bytes_ -= std::exchange(told_bytes_, 0);
    const bool all_begun = std::find(begun_.begin(), begun_.end(), false) == begun_.end();
    const bool behind = std::ranges::any_of(readers_, &Reader::behind);
    if (taken_.empty() && all_begun && !behind) end_catching_up();
  }
  tell_past();
  // One batch may hold the beginnings of many choices, each with the prompt that it echoes.
  while (!taken_.empty() && news.bytes.size() < limits::kHttpPieceBytes) {
    Pending item = std::move(taken_.front());
    taken_.pop_front();
    told_bytes_ += bytes_of(item.event);
    const std::optional<Error> error = std::exchange(item.event.error, std::nullopt);
    if (error && !shows_errors_) {
      news.error = to_api_error(*error);
      cancel();
      return news;
    }
    if (error) item.event.request_done = false;  // So that it is the prompt's end.
    answer_->add(item.prompt, std::move(item.event), news.bytes);
    if (error) answer_->fail(item.prompt, to_api_error(*error));
  }
  news.done = answer_->complete();
  if (news.done && stream_) news.bytes += answer_->stream_end();
  return news;
}

void Exchange::describe(ServedRequest& served) const {
  served.id = id_;
  if (!answer_) return;
  std::tie(served.prompt_tokens, served.completion_tokens) = answer_->tokens();
}

bool Exchange::write_piece(std::string& out) {
  const InHand hand(id_);
  return answer_->write_piece(out);
}

bool Exchange::kept() {
  const auto found = requests_.find(id_, owner_);
  return found.ok() && std::all_of(found->begin(), found->end(), [](const NamedRequest& prompt) {
           return !prompt.name || prompt.kept;
         });
}

void Exchange::cancel() {
  std::vector<std::uint64_t> running;
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
    wake_ = nullptr;
    pending_.clear();
    end_catching_up();
    room_.give_back(std::exchange(kept_bytes_, 0));
    for (Reader& reader : readers_) {
      if (reader.number && !reader.ended) running.push_back(*reader.number);
      reader.number.reset();
    }
  }
  for (const std::uint64_t number : running) service_.cancel(number);
}

}  // namespace troupe
