#include "tools/troupe/bench/answer_reader.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "tools/troupe/bench/limits.h"
#include "tools/troupe/chat/terminal_text.h"

namespace troupe::bench {
namespace {

using nlohmann::json;

/// An error's body is read up to here.
constexpr std::size_t kErrorBodyBytesMax = 16 << 10;
/// More tokens than that no answer has.
constexpr std::uint64_t kTokensMax = 1'000'000'000;

double seconds(Duration span) { return std::chrono::duration<double>(span).count(); }

std::string_view text_of(const json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_string()) return {};
  return found->get_ref<const std::string&>();
}

bool has_items(const json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_array() && !found->empty();
}

bool is_null(const json& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() || found->is_null();
}

std::optional<std::uint64_t> count_of(const json& usage, const char* name) {
  const auto found = usage.find(name);
  if (found == usage.end() || !found->is_number_unsigned()) return std::nullopt;
  const auto count = found->get<std::uint64_t>();
  return count <= kTokensMax ? std::optional(count) : std::nullopt;
}

/// The text of a choice and whether it stands for tokens. The last piece of an answer often brings
/// only why it ended, the first of a chat only the role; a piece with neither is half a character.
std::optional<std::string> token_text(const json& choice, bool chat) {
  if (!choice.is_object()) return std::nullopt;
  const bool ends = !is_null(choice, "finish_reason");
  if (!chat) {
    const std::string_view text = text_of(choice, "text");
    if (text.empty() && ends && !has_items(choice, "token_ids")) return std::nullopt;
    return std::string(text);
  }
  const auto delta = choice.find("delta");
  if (delta == choice.end() || !delta->is_object()) return std::nullopt;
  std::string text;
  for (const char* name : {"reasoning_content", "reasoning", "content"})
    text += text_of(*delta, name);
  const bool empty = text.empty() && !has_items(*delta, "tool_calls");
  if (empty && (ends || delta->contains("role")) && !has_items(choice, "token_ids"))
    return std::nullopt;
  return text;
}

}  // namespace

AnswerReader::AnswerReader(Question question, std::function<void(Outcome)> then)
    : question_(question),
      then_(std::move(then)),
      events_([this](std::string_view data) { return on_event(data); }) {
  outcome_.record.tokens_max = question.tokens_max;
}

Status AnswerReader::on_head(const HttpHead& head) {
  head_ = head;
  outcome_.record.status = head.status;
  if (head.status == 429 || head.status == 503) outcome_.retry_after = head.retry_after;
  if (head.status >= 300 && head.status < 400)
    return refused("HTTP " + std::to_string(head.status) + ": the server points to '" +
                   head.location + "'; give that as --base-url if you mean it");
  if (!head.content_encoding.empty() && head.content_encoding != "identity")
    return corrupt("The answer is compressed (" + head.content_encoding +
                   "), which was not asked for");
  if (head.status == 200 && !head.content_type.starts_with("text/event-stream"))
    return corrupt("The answer is no stream of events but '" + head.content_type + "'");
  return {};
}

Status AnswerReader::on_body(std::string_view bytes, TimePoint at) {
  read_at_ = at;
  if (head_.status == 200) return events_.feed(bytes);
  error_body_.append(bytes.substr(0, kErrorBodyBytesMax - error_body_.size()));
  return {};
}

Status AnswerReader::on_event(std::string_view data) {
  if (done_) return {};
  if (data == "[DONE]") {
    done_ = true;
    return {};
  }
  const json event = json::parse(data, nullptr, false);
  if (!event.is_object()) return corrupt("An event of the answer is no JSON object");
  if (const auto error = event.find("error"); error != event.end() && !error->is_null()) {
    const auto message = error->is_object() ? text_of(*error, "message") : std::string_view();
    return refused("The server broke off: " + std::string(message));
  }
  if (const auto usage = event.find("usage"); usage != event.end() && usage->is_object()) {
    told_prompt_ = count_of(*usage, "prompt_tokens");
    told_output_ = count_of(*usage, "completion_tokens");
    outcome_.record.usage_told = true;
  }
  if (!has_items(event, "choices")) return {};
  const json& choice = event["choices"][0];
  if (const auto text = token_text(choice, question_.chat)) on_token(*text);
  if (choice.is_object() && !is_null(choice, "finish_reason")) finished_ = true;
  return {};
}

void AnswerReader::on_token(std::string_view text) {
  RequestRecord& r = outcome_.record;
  if (++r.pieces == 1)
    r.ttft_s = seconds(read_at_ - question_.sent);
  else
    r.itls_s.push_back(static_cast<float>(seconds(read_at_ - last_token_)));
  last_token_ = read_at_;
  r.latency_s = seconds(read_at_ - question_.sent);
  r.text.append(text.substr(0, kTextBytesMax - std::min(r.text.size(), kTextBytesMax)));
}

/// A piece holds a token at least, but for one that brings what was held back; nobody answers with
/// more tokens than were asked for. Ids that we sent need no counting.
void AnswerReader::settle_counts() {
  RequestRecord& r = outcome_.record;
  const bool fits = told_output_ && *told_output_ + 1 >= r.pieces &&
                    (r.tokens_max == 0 || *told_output_ <= r.tokens_max);
  const bool prompt_fits =
      told_prompt_ && (question_.prompt_tokens == 0 || *told_prompt_ == question_.prompt_tokens);
  r.usage_doubtful = r.usage_told && !(fits && prompt_fits);
  r.usage_told = r.usage_told && fits;
  r.output_tokens = r.usage_told ? *told_output_ : r.pieces;
  r.prompt_tokens =
      question_.prompt_tokens != 0 ? question_.prompt_tokens : told_prompt_.value_or(0);
}

std::string AnswerReader::refusal() const {
  const json body = json::parse(error_body_, nullptr, false);
  std::string_view why;
  if (body.is_object()) {
    const auto error = body.find("error");
    why = error != body.end() && error->is_object() ? text_of(*error, "message")
                                                    : text_of(body, "message");
  }
  std::string text = "HTTP " + std::to_string(head_.status) + ": ";
  text += why.empty() ? head_.reason : std::string(why);
  if (!outcome_.retry_after.empty()) text += " (Retry-After: " + outcome_.retry_after + ")";
  return text;
}

void AnswerReader::on_end(Status status, TimePoint) {
  RequestRecord& r = outcome_.record;
  r.cut = !status.ok() && status.error().code == ErrorCode::kCancelled;
  // With its last event the answer is whole, however the connection ends.
  if (done_) status = {};
  if (status.ok() && head_.status != 200)
    status = refused(refusal());
  else if (status.ok() && !done_ && !finished_)
    status = corrupt("The stream ended before its last event");
  else if (status.ok() && r.pieces == 0)
    status = corrupt("The answer has no token");
  r.ok = status.ok();
  if (!r.ok) r.error = chat::terminal_line(status.error().message, kErrorBytesMax);
  settle_counts();
  then_(std::move(outcome_));
}

}  // namespace troupe::bench
