#include "tools/troupe/http/url.h"

#include <algorithm>
#include <charconv>

namespace troupe::http {
namespace {

Error bad_url(std::string_view flag, std::string_view text, std::string_view why) {
  return invalid_argument(std::string(flag) + " '" + std::string(text) + "' " + std::string(why) +
                          "; it looks like http://127.0.0.1:8000.");
}

}  // namespace

std::string Url::authority() const {
  const std::string name = host.find(':') == std::string::npos ? host : "[" + host + "]";
  return port == (tls ? 443 : 80) ? name : name + ":" + std::to_string(port);
}

std::string Url::text() const { return (tls ? "https://" : "http://") + authority() + path; }

Result<Url> parse_url(std::string_view text, std::string_view flag) {
  Url url;
  std::string_view rest = text;
  if (rest.starts_with("https://")) {
    url.tls = true;
    url.port = 443;
    rest.remove_prefix(8);
  } else if (rest.starts_with("http://")) {
    rest.remove_prefix(7);
  } else {
    return bad_url(flag, text, "begins neither with http:// nor with https://");
  }
  if (std::any_of(rest.begin(), rest.end(), [](unsigned char c) { return c <= 0x20 || c > 0x7e; }))
    return bad_url(flag, text, "holds a character that no address has");
  if (rest.find_first_of("?#@") != rest.npos)
    return bad_url(flag, text, "holds more than a host, a port and a path");
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  std::string_view authority = rest.substr(0, slash);
  std::string_view path = rest.substr(slash);
  std::string_view port;
  if (authority.starts_with('[')) {
    const std::size_t end = authority.find(']');
    if (end == authority.npos) return bad_url(flag, text, "has a [ without its ]");
    url.host = authority.substr(1, end - 1);
    port = authority.substr(end + 1);
  } else {
    const std::size_t colon = std::min(authority.find(':'), authority.size());
    url.host = authority.substr(0, colon);
    port = authority.substr(colon);
  }
  if (url.host.empty()) return bad_url(flag, text, "names no host");
  if (!port.empty()) {
    const char* end = port.data() + port.size();
    const auto parsed = std::from_chars(port.data() + 1, end, url.port);
    if (port[0] != ':' || parsed.ec != std::errc() || parsed.ptr != end || url.port == 0)
      return bad_url(flag, text, "has a port that is no number from 1 to 65535");
  }
  while (path.ends_with('/')) path.remove_suffix(1);
  if (path.ends_with("/v1")) path.remove_suffix(3);
  url.path = path;
  return url;
}

}  // namespace troupe::http
