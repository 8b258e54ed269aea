#include "actors/gateway/http_text.h"

#include <charconv>

namespace troupe {
namespace {

std::string_view reason(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 413:
      return "Payload Too Large";
    case 415:
      return "Unsupported Media Type";
    case 422:
      return "Unprocessable Content";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 503:
      return "Service Unavailable";
    case 529:
      return "Overloaded";
    default:
      return "Internal Server Error";
  }
}

}  // namespace

std::string response_head(const HttpReply& reply, BodyEnd end, bool keep_alive) {
  std::string head(kHeadBegin);
  head += std::to_string(reply.status);
  head += ' ';
  head += reason(reply.status);
  head += "\r\nServer: troupe\r\nContent-Type: " + reply.content_type;
  for (const auto& [name, value] : reply.headers) head += "\r\n" + name + ": " + value;
  if (end == BodyEnd::kLength) head += "\r\nContent-Length: " + std::to_string(reply.body.size());
  if (end == BodyEnd::kChunks) head += "\r\nTransfer-Encoding: chunked";
  head += "\r\nConnection: ";
  head += keep_alive && end != BodyEnd::kClose ? "keep-alive" : "close";
  return head + "\r\n\r\n";
}

HttpReply stream_reply() {
  return {.content_type = "text/event-stream; charset=utf-8",
          .headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}}};
}

void append_chunk(std::string& out, std::string_view bytes) {
  if (bytes.empty()) return;
  char size[20];
  const auto end = std::to_chars(size, size + sizeof size, bytes.size(), 16).ptr;
  out.append(size, end);
  out += "\r\n";
  out += bytes;
  out += "\r\n";
}

ApiError late_request_error() {
  return {.status = 408,
          .message = "The request did not arrive in time.",
          .type = "timeout_error",
          .code = "timeout"};
}

ApiError body_too_large_error(std::size_t bytes_max) {
  return {.status = 413,
          .message = "The request's body is over " + std::to_string(bytes_max) + " bytes.",
          .code = "body_too_large"};
}

ApiError header_too_large_error(std::size_t bytes_max) {
  return {.status = 431,
          .message = "The request's header is over " + std::to_string(bytes_max) + " bytes.",
          .code = "header_too_large"};
}

ApiError too_many_fields_error(std::size_t lines_max) {
  return {.status = 431,
          .message = "The request's header has over " + std::to_string(lines_max) + " lines.",
          .code = "header_too_large"};
}

ApiError framing_too_large_error(std::size_t bytes_max) {
  return {.status = 431,
          .message = "The chunk extensions and trailer fields of the request's body are over " +
                     std::to_string(bytes_max) + " bytes.",
          .code = "header_too_large"};
}

ApiError bad_http_error(std::string_view why) {
  return {.status = 400,
          .message = "This is not an HTTP/1.1 request: " + std::string(why) + ".",
          .code = std::string(kBadHttp)};
}

ApiError too_many_connections_error() {
  return {.status = 503,
          .message = "The server has as many connections as it takes; try again in a moment.",
          .type = "service_unavailable_error",
          .code = "too_many_connections",
          .retry_after_s = 1};
}

}  // namespace troupe
