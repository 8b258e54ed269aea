#include "tools/troupe/http/http_response.h"

#include <algorithm>
#include <cctype>
#include <charconv>

#include "tools/troupe/http/limits.h"

namespace troupe::http {
namespace {

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

std::string lower(std::string_view text) {
  std::string small(text);
  for (char& c : small) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return small;
}

std::optional<std::uint64_t> number(std::string_view digits, int base) {
  std::uint64_t value = 0;
  const char* end = digits.data() + digits.size();
  const auto parsed = std::from_chars(digits.data(), end, value, base);
  if (digits.empty() || parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  return value;
}

Error too_long() {
  return resource_exhausted("The answer is longer than " + std::to_string(kAnswerBytesMax >> 20) +
                            " MiB");
}

}  // namespace

bool HttpResponse::in_lines() const {
  return at_ != At::kLengthBody && at_ != At::kChunkBody && at_ != At::kCloseBody &&
         at_ != At::kDone;
}

std::size_t HttpResponse::line_bytes_max() const {
  const bool chunk = at_ == At::kChunkLine || at_ == At::kChunkEnd;
  return chunk ? kChunkLineBytesMax : kHeadBytesMax - std::min(head_bytes_, kHeadBytesMax);
}

Status HttpResponse::feed(std::string_view bytes) {
  bytes_ += bytes.size();
  while (!bytes.empty() && at_ != At::kDone) {
    if (!in_lines()) {
      if (Status read = on_body(bytes); !read.ok()) return read;
      continue;
    }
    const std::size_t end = bytes.find('\n');
    const std::size_t taken = std::min(end, bytes.size());
    if (line_.size() + taken > line_bytes_max())
      return resource_exhausted(at_ == At::kChunkLine || at_ == At::kChunkEnd
                                    ? "The line before a chunk of the answer has no end"
                                    : "The head of the answer has no end");
    line_.append(bytes.substr(0, taken));
    if (end == bytes.npos) return {};
    bytes.remove_prefix(end + 1);
    std::string line = std::exchange(line_, {});
    if (line.ends_with('\r')) line.pop_back();
    if (at_ != At::kChunkLine && at_ != At::kChunkEnd) head_bytes_ += line.size() + 2;
    if (Status read = on_line(line); !read.ok()) return read;
  }
  excess_ += bytes.size();
  return {};
}

Status HttpResponse::on_line(std::string_view line) {
  switch (at_) {
    case At::kStatusLine:
      return on_status_line(line);
    case At::kFields:
      return line.empty() ? on_head_end() : on_field(line);
    case At::kChunkLine:
      return on_chunk_line(line);
    case At::kChunkEnd:
      if (!line.empty()) return corrupt("A chunk of the answer is longer than it says");
      at_ = At::kChunkLine;
      return {};
    case At::kTrailer:
      if (line.empty()) at_ = At::kDone;
      return {};
    default:
      return internal_error("A line of the answer where none may be");
  }
}

Status HttpResponse::on_status_line(std::string_view line) {
  if (!line.starts_with("HTTP/1.") || line.size() < 12 || line[8] != ' ')
    return corrupt("The answer is no HTTP/1.1");
  const auto status = number(line.substr(9, 3), 10);
  if (!status || *status < 100 || *status > 599)
    return corrupt("The answer has no status that HTTP knows");
  head_ = {};
  length_.reset();
  chunked_ = false;
  version_11_ = line[7] != '0';
  keep_alive_ = version_11_;
  head_.status = static_cast<int>(*status);
  head_.reason = trimmed(line.substr(12));
  at_ = At::kFields;
  return {};
}

Status HttpResponse::on_field(std::string_view line) {
  const std::size_t colon = line.find(':');
  if (colon == line.npos || colon == 0) return corrupt("A field of the answer's head has no name");
  const std::string name = lower(line.substr(0, colon));
  const std::string_view value = trimmed(line.substr(colon + 1));
  if (name == "content-length") {
    const auto length = number(value, 10);
    if (!length || (length_ && *length_ != *length))
      return corrupt("The answer's Content-Length is no number");
    length_ = length;
  } else if (name == "transfer-encoding") {
    if (lower(value) != "chunked")
      return corrupt("The answer has the Transfer-Encoding '" + std::string(value.substr(0, 40)) +
                     "', which was not asked for");
    chunked_ = true;
  } else if (name == "connection") {
    const std::string wish = lower(value);
    if (wish.find("close") != wish.npos) keep_alive_ = false;
    if (wish.find("keep-alive") != wish.npos) keep_alive_ = true;
  } else if (name == "content-type") {
    head_.content_type = lower(value);
  } else if (name == "content-encoding") {
    head_.content_encoding = lower(value);
  } else if (name == "location") {
    head_.location = value;
  } else if (name == "retry-after") {
    head_.retry_after = value;
  } else if (name == "link") {
    head_.link = value;
  }
  return {};
}

Status HttpResponse::on_head_end() {
  if (head_.status < 200) {
    if (head_.status == 101) return corrupt("The server changes to another protocol");
    at_ = At::kStatusLine;
    return {};
  }
  if (Status taken = sink_.head(head_); !taken.ok()) return taken;
  if (head_.status == 204 || head_.status == 304) {
    at_ = At::kDone;
  } else if (chunked_) {
    at_ = At::kChunkLine;
  } else if (length_) {
    left_ = *length_;
    at_ = left_ == 0 ? At::kDone : At::kLengthBody;
    if (left_ > kAnswerBytesMax) return too_long();
  } else {
    keep_alive_ = false;
    at_ = At::kCloseBody;
  }
  return {};
}

Status HttpResponse::on_chunk_line(std::string_view line) {
  // What follows a semicolon is an extension; nobody knows any.
  const auto size = number(trimmed(line.substr(0, line.find(';'))), 16);
  if (!size) return corrupt("A chunk of the answer does not say how long it is");
  if (*size > kAnswerBytesMax) return too_long();
  left_ = *size;
  at_ = left_ == 0 ? At::kTrailer : At::kChunkBody;
  return {};
}

Status HttpResponse::on_body(std::string_view& bytes) {
  std::size_t taken = bytes.size();
  if (at_ != At::kCloseBody)
    taken = static_cast<std::size_t>(std::min<std::uint64_t>(taken, left_));
  body_bytes_ += taken;
  if (body_bytes_ > kAnswerBytesMax) return too_long();
  const Status read = sink_.body(bytes.substr(0, taken));
  bytes.remove_prefix(taken);
  if (at_ == At::kCloseBody) return read;
  left_ -= taken;
  if (left_ == 0) at_ = at_ == At::kChunkBody ? At::kChunkEnd : At::kDone;
  return read;
}

Status HttpResponse::finish() {
  if (at_ == At::kCloseBody) at_ = At::kDone;
  if (done()) return {};
  if (!begun()) return unavailable("The server closed the connection without an answer");
  return corrupt("The server closed the connection in the middle of an answer");
}

}  // namespace troupe::http
