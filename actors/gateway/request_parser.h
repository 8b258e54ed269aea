#pragma once

// For gateway.cpp alone: it pulls in Beast.

#include <algorithm>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "actors/gateway/api.h"
#include "actors/gateway/gateway.h"
#include "actors/gateway/http_target.h"
#include "actors/gateway/http_text.h"
#include "runtime/limits.h"

namespace troupe {

namespace http = boost::beast::http;

/// One request as it arrives: Beast's parser, and the bounds that it lacks. Beast 1.74 waits for
/// the end of a chunk's line, or of a trailer, however long it gets, and takes any number of
/// fields.
class RequestParser {
 public:
  explicit RequestParser(const GatewayOptions& options) : options_(options) {
    parser_.header_limit(static_cast<std::uint32_t>(options.header_bytes_max));
    parser_.body_limit(options.body_bytes_max);
  }

  bool header_is_done() const { return parser_.is_header_done(); }
  bool is_done() const { return parser_.is_done(); }
  /// Of the body, that have come.
  std::size_t body_bytes() const { return parser_.get().body().size(); }

  /// Takes of `inbox` what it can, no more than the header before that is done. `starved`: it needs
  /// more than the inbox has. Errors: 400, 413, 431.
  std::optional<ApiError> take(boost::beast::flat_buffer& inbox, bool& starved) {
    boost::system::error_code ec;
    const bool in_header = !header_is_done();
    const std::size_t body_before = body_bytes();
    parser_.eager(!in_header);
    const char* const begin = static_cast<const char*>(inbox.cdata().data());
    const std::size_t used = parser_.put(inbox.cdata(), ec);
    if (in_header) lines_ += std::count(begin, begin + used, '\n');
    inbox.consume(used);
    beside_body_ += used - (body_bytes() - body_before);
    const bool unfinished = ec == http::error::need_more;
    starved = inbox.size() == 0 || unfinished;
    if (ec && !unfinished) return error_of(ec);
    return check_beside_body(unfinished ? inbox.size() : 0);
  }

  /// What is known once the header is done. What is wrong with it, or nothing.
  std::string read_head(HttpHead& head) const {
    const auto& request = parser_.get();
    // Whoever reads another end of the body than a proxy before us would take its rest for a
    // request.
    const auto codings = request.count(http::field::transfer_encoding);
    if (codings > 0 && (codings > 1 || version_1_0() ||
                        !boost::beast::iequals(request[http::field::transfer_encoding], "chunked")))
      return "Transfer-Encoding may be chunked and nothing else";
    const auto hosts = request.count(http::field::host);
    if (hosts > 1 || (hosts == 0 && !version_1_0())) return "it must have one Host field";
    auto target = parse_target({request.target().data(), request.target().size()});
    if (!target) return "its path has a percent sign that no two hexadecimal digits follow";
    head.method = text(request.method_string());
    head.path = std::move(target->path);
    head.query = std::move(target->query);
    if (hosts == 1) head.host = field(http::field::host);
    if (!target->authority.empty()) head.host = std::move(target->authority);
    head.authorization = field(http::field::authorization);
    if (const auto key = text(request["X-Api-Key"]); head.authorization.empty() && !key.empty())
      head.authorization = "Bearer " + key;
    head.content_type = field(http::field::content_type);
    head.origin = field(http::field::origin);
    head.requested_method = field(http::field::access_control_request_method);
    head.requested_headers = field(http::field::access_control_request_headers);
    head.last_event_id = text(request["Last-Event-ID"]);
    head.idempotency_keys = fields("Idempotency-Key");
    head.request_ids = fields("X-Request-Id");
    head.content_encodings = fields("Content-Encoding");
    return "";
  }

  bool version_1_0() const { return parser_.get().version() < 11; }
  bool keep_alive() const { return parser_.keep_alive(); }
  /// Before it sends the body, the client waits for a word.
  bool waits_to_continue() const {
    return boost::beast::iequals(parser_.get()[http::field::expect], "100-continue");
  }

  /// Lets go of all but the body.
  std::string take_body() { return std::move(parser_.release().body()); }

 private:
  /// `waiting`: bytes of a line, or of lines, that are not all there.
  std::optional<ApiError> check_beside_body(std::size_t waiting) const {
    const std::size_t most = options_.header_bytes_max;
    if (!header_is_done()) {
      if (beside_body_ + waiting > most) return header_too_large_error(most);
    } else if (waiting > most || beside_body_ > most + limits::kHttpFramingFactor * body_bytes()) {
      return framing_too_large_error(most);
    }
    if (lines_ > static_cast<std::ptrdiff_t>(limits::kHttpHeaderLinesMax))
      return too_many_fields_error(limits::kHttpHeaderLinesMax);
    return std::nullopt;
  }

  ApiError error_of(boost::system::error_code ec) const {
    if (ec == http::error::body_limit) return body_too_large_error(options_.body_bytes_max);
    if (ec == http::error::header_limit) return header_too_large_error(options_.header_bytes_max);
    return bad_http_error(ec.message());
  }

  static std::string text(boost::beast::string_view view) { return {view.data(), view.size()}; }
  std::string field(http::field name) const { return text(parser_.get()[name]); }
  std::vector<std::string> fields(std::string_view name) const {
    std::vector<std::string> values;
    const auto [first, last] = parser_.get().equal_range({name.data(), name.size()});
    for (auto it = first; it != last; ++it) values.push_back(text(it->value()));
    return values;
  }

  const GatewayOptions& options_;
  http::request_parser<http::string_body> parser_;
  std::size_t beside_body_ = 0;  // Taken: header, chunks' lines, trailers.
  std::ptrdiff_t lines_ = 0;     // Of the header.
};

}  // namespace troupe
