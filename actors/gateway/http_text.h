#pragma once

#include <string>
#include <string_view>

#include "actors/gateway/api.h"
#include "actors/gateway/api_error.h"

namespace troupe {

/// How a client tells where the answer's body ends.
enum class BodyEnd : unsigned char {
  kLength,
  kChunks,
  kClose,  ///< with the connection, for HTTP/1.0, which knows no chunks
};
/// What every head begins with, whatever its status.
inline constexpr std::string_view kHeadBegin = "HTTP/1.1 ";
/// The status line and the fields of an answer, up to the empty line.
std::string response_head(const HttpReply& reply, BodyEnd end, bool keep_alive);

/// A stream of server-sent events, without its body.
HttpReply stream_reply();
/// A line of such a stream that its readers pass over.
inline constexpr std::string_view kWaitingComment = ": waiting\n\n";

/// Appends `bytes` as one chunk; nothing if there are none, for an empty chunk would end the
/// stream.
void append_chunk(std::string& out, std::string_view bytes);
inline constexpr std::string_view kLastChunk = "0\r\n\r\n";

// What can be wrong below the API.
ApiError late_request_error();
ApiError body_too_large_error(std::size_t bytes_max);
ApiError header_too_large_error(std::size_t bytes_max);
ApiError too_many_fields_error(std::size_t lines_max);
/// What a body in chunks has beside itself: their lines, and trailer fields.
ApiError framing_too_large_error(std::size_t bytes_max);
/// Its code is kBadHttp.
ApiError bad_http_error(std::string_view why);
inline constexpr std::string_view kBadHttp = "bad_http";
ApiError too_many_connections_error();

}  // namespace troupe
