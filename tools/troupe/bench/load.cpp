#include "tools/troupe/bench/load.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <utility>

#include "tools/troupe/bench/limits.h"
#include "tools/troupe/bench/random.h"

namespace troupe::bench {
namespace {

using nlohmann::json;

/// Streams of the seed: arrivals, and the pauses before later turns.
constexpr std::uint64_t kArrivalStream = 2, kThinkStream = 3;

std::string quoted(const std::string& text) {
  return json(text).dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string ids_json(const std::vector<std::int32_t>& ids) {
  std::string out = "[";
  char digits[16];
  for (const std::int32_t id : ids) {
    if (out.size() > 1) out += ',';
    out.append(digits, std::to_chars(digits, digits + sizeof digits, id).ptr);
  }
  return out + "]";
}

std::string message(const char* role, const std::string& text) {
  return std::string("{\"role\":\"") + role + "\",\"content\":" + quoted(text) + "}";
}

Duration span(double seconds) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

}  // namespace

Load::Load(HttpClient& client, const LoadOptions& options, const PromptSource& prompts)
    : client_(client), options_(options), prompts_(prompts), records_(options.requests) {
  const std::size_t sessions = options.streams_max();
  arrivals_s_ = arrivals(sessions, options.rate / static_cast<double>(options.turns),
                         options.burstiness, SplitMix(options.seed ^ kArrivalStream).next());
  if (options.turns > 1) sessions_.resize(sessions);
}

double Load::since_begun(TimePoint at) const {
  return std::chrono::duration<double>(at - begun_).count();
}

double Load::duration_s() const { return since_begun(ended_ == options_.requests ? over_ : now()); }

void Load::start() {
  begun_ = now();
  schedule_arrival(0);
}

/// One timer at a time: a million of them would make each of them late.
void Load::schedule_arrival(std::size_t session) {
  while (session < arrivals_s_.size()) {
    const TimePoint due = begun_ + span(arrivals_s_[session]);
    if (due > now()) return client_.at(due, [this, session] { schedule_arrival(session); });
    arrive(session++ * options_.turns, due);
  }
}

void Load::arrive(std::size_t number, TimePoint due) {
  records_[number].due_s = since_begun(due);
  waiting_.push_back(number);
  send_waiting();
}

void Load::send_waiting() {
  while (!waiting_.empty() && !client_.stopped() &&
         (options_.max_concurrency == 0 || running_ < options_.max_concurrency)) {
    const std::size_t number = waiting_.front();
    waiting_.pop_front();
    send(number);
  }
}

std::string Load::body_of(std::size_t number) {
  const Prompt prompt = prompts_.prompt(number);
  RequestRecord& r = records_[number];
  r.tokens_max = prompt.output_tokens;
  std::string history, text = prompt.text;
  if (options_.turns > 1) {
    auto& said = sessions_[number / options_.turns];
    for (const Said& turn : said)
      history += options_.chat ? message("user", turn.question) + "," +
                                     message("assistant", turn.answer) + ","
                               : turn.question + turn.answer + " ";
    said.push_back({text, {}});
  }
  std::string body = "{" + options_.fields + (options_.fields.empty() ? "" : ",");
  const std::string length = std::to_string(prompt.output_tokens);
  if (options_.chat)
    return body + "\"max_completion_tokens\":" + length + ",\"messages\":[" + history +
           message("user", text) + "]}";
  if (!prompt.ids.empty()) r.prompt_tokens = prompt.ids.size();
  return body + "\"max_tokens\":" + length +
         ",\"prompt\":" + (prompt.ids.empty() ? quoted(history + text) : ids_json(prompt.ids)) +
         "}";
}

TimePoint Load::first_sent(std::size_t number) const {
  return begun_ + span(records_[number].start_s);
}

void Load::send(std::size_t number) {
  std::string body = body_of(number);
  RequestRecord& r = records_[number];
  const TimePoint sent = now();
  if (!std::exchange(r.started, true)) r.start_s = since_begun(sent);
  ++running_;
  // A request that was refused waits for its answer since it was sent first.
  const Duration left = options_.timeout - (sent - first_sent(number));
  HttpRequest request{"POST", options_.chat ? "/v1/chat/completions" : "/v1/completions",
                      std::move(body), std::max<Duration>(left, std::chrono::milliseconds(1))};
  const AnswerReader::Question question{options_.chat, r.prompt_tokens, r.tokens_max,
                                        first_sent(number)};
  client_.send(std::move(request),
               std::make_unique<AnswerReader>(question, [this, number](auto outcome) {
                 on_outcome(number, std::move(outcome));
               }));
}

bool Load::retry(std::size_t number, const AnswerReader::Outcome& outcome) {
  const int status = outcome.record.status;
  RequestRecord& r = records_[number];
  if ((status != 429 && status != 503) || r.retries >= options_.max_retries) return false;
  int wait_s = 1;
  const std::string& told = outcome.retry_after;
  std::from_chars(told.data(), told.data() + told.size(), wait_s);
  const auto wait = std::clamp<Duration>(std::chrono::seconds(wait_s), {}, kRetryAfterMax);
  if (now() + wait >= first_sent(number) + options_.timeout) return false;
  ++r.retries;
  if (options_.turns > 1) sessions_[number / options_.turns].pop_back();
  client_.at(now() + wait, [this, number] {
    waiting_.push_back(number);
    send_waiting();
  });
  return true;
}

void Load::on_outcome(std::size_t number, AnswerReader::Outcome outcome) {
  --running_;
  if (!retry(number, outcome)) {
    RequestRecord& r = records_[number];
    RequestRecord& got = outcome.record;
    got.due_s = r.due_s;
    got.start_s = r.start_s;
    got.started = true;
    got.retries = r.retries;
    over_ = now();
    got.ended_s = since_begun(over_);
    r = std::move(got);
    ++ended_;
    failed_ += !r.ok && !r.cut;
    go_on(number);
  }
  if (on_progress) on_progress();
  // Not from within the end of another: many may fail at once.
  if (!waiting_.empty()) client_.at(now(), [this] { send_waiting(); });
  if (ended_ == options_.requests && on_over) on_over();
}

/// The session's next turn, if there is one.
void Load::go_on(std::size_t number) {
  if (options_.turns <= 1) return;
  auto& said = sessions_[number / options_.turns];
  said.back().answer = records_[number].text;
  const std::size_t next = number + 1;
  if (next % options_.turns == 0 || next == records_.size()) return said.clear();
  Random random(options_.seed ^ kThinkStream, next);
  const TimePoint due = now() + span(options_.think_s * random.exponential());
  client_.at(due, [this, next, due] { arrive(next, due); });
}

}  // namespace troupe::bench
