#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/result.h"

namespace troupe::http {

/// What of an answer's head matters here.
struct HttpHead {
  int status = 0;
  std::string reason;            ///< the words after the status, "" if there are none
  std::string content_type;      ///< in small letters
  std::string content_encoding;  ///< in small letters; "" or "identity": as it is
  std::string location, retry_after, link;
};

/// Reads an HTTP/1.x answer in whatever pieces it comes, however hostile they are.
///
///     head --> body (by length | in chunks | until the connection ends) --> done
///
/// Answers of status 1xx before the real one are passed over. Never keeps more than a head or the
/// line before a chunk.
class HttpResponse {
 public:
  struct Sink {
    std::function<Status(const HttpHead&)> head;         ///< once; an error ends the reading
    std::function<Status(std::string_view bytes)> body;  ///< pieces, none of them empty
  };
  explicit HttpResponse(Sink sink) : sink_(std::move(sink)) {}

  /// kCorrupt: it is no HTTP, or breaks off its own rules; kResourceExhausted: a bound was
  /// reached; else what the sink said. Nothing may follow an error.
  Status feed(std::string_view bytes);
  /// The connection has ended: an error unless the answer may end that way.
  Status finish();

  bool done() const { return at_ == At::kDone; }
  /// Whether the connection may carry another request. Only meaningful once done.
  bool keep_alive() const { return keep_alive_ && excess_ == 0; }
  /// Whether anything has come.
  bool begun() const { return bytes_ > 0; }

 private:
  enum class At : unsigned char {
    kStatusLine,
    kFields,
    kLengthBody,
    kChunkLine,
    kChunkBody,
    kChunkEnd,
    kTrailer,
    kCloseBody,
    kDone,
  };

  /// One line of the head, or of what surrounds chunks.
  Status on_line(std::string_view line);
  Status on_status_line(std::string_view line);
  Status on_field(std::string_view line);
  Status on_head_end();
  Status on_chunk_line(std::string_view line);
  Status on_body(std::string_view& bytes);
  bool in_lines() const;
  std::size_t line_bytes_max() const;

  Sink sink_;
  At at_ = At::kStatusLine;
  std::string line_;            ///< the beginning of one
  std::size_t head_bytes_ = 0;  ///< of lines so far
  std::uint64_t bytes_ = 0, body_bytes_ = 0, excess_ = 0;
  std::uint64_t left_ = 0;               ///< of the body or chunk
  std::optional<std::uint64_t> length_;  ///< what the head says
  bool chunked_ = false, keep_alive_ = true, version_11_ = true;
  HttpHead head_;
};

}  // namespace troupe::http
