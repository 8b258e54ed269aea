#include "actors/gateway/site_rules.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "runtime/host.h"

namespace troupe {
namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

bool is_port(std::string_view text) {
  return text.size() <= 5 && std::all_of(text.begin(), text.end(),
                                         [](unsigned char c) { return std::isdigit(c) != 0; });
}

/// The host of "host", "host:port" or "[address]:port"; empty if it is none of them.
std::string_view host_of(std::string_view authority) {
  std::string_view host = authority, rest;
  if (authority.starts_with('[')) {
    const auto end = authority.find(']');
    if (end == std::string_view::npos) return {};
    host = authority.substr(1, end - 1);
    rest = authority.substr(end + 1);
    if (host.find(':') == std::string_view::npos) return {};
  } else if (const auto colon = authority.find(':'); colon != std::string_view::npos) {
    host = authority.substr(0, colon);
    rest = authority.substr(colon);
  }
  if (!rest.empty() && (rest.front() != ':' || !is_port(rest.substr(1)))) return {};
  if (host.ends_with('.')) host.remove_suffix(1);  // the root, as a resolver would write it
  return host;
}

bool is_address(std::string_view host) {
  const std::string text(host);
  in6_addr bytes{};
  return inet_pton(AF_INET, text.c_str(), &bytes) == 1 ||
         inet_pton(AF_INET6, text.c_str(), &bytes) == 1;
}

/// An authority without the port that its scheme has anyway.
std::string_view without_port(std::string_view authority, std::string_view port) {
  if (authority.ends_with(port)) authority.remove_suffix(port.size());
  return authority;
}

/// Whether a page at `origin` asks the server that it came from.
bool same_site(const std::string& origin, const std::string& host) {
  const auto same = [&](std::string_view scheme, std::string_view port) {
    return origin.starts_with(scheme) &&
           without_port(std::string_view(origin).substr(scheme.size()), port) ==
               without_port(host, port);
  };
  return same("http://", ":80") || same("https://", ":443");
}

bool contains(const std::vector<std::string>& list, std::string_view item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

}  // namespace

Status SiteRules::check(const Options& options) {
  for (const std::string& host : options.hosts) {
    if (host.empty() || host.find_first_of(":/ ") != host.npos)
      return invalid_argument("--allowed-host takes a name such as llm.example.com, not '" + host +
                              "'.");
  }
  for (const std::string& origin : options.origins) {
    const auto scheme = origin.find("://");
    const bool url = scheme != origin.npos && scheme > 0 && scheme + 3 < origin.size() &&
                     origin.find_first_of("/ ", scheme + 3) == origin.npos;
    if (!url && origin != "*" && origin != "null")
      return invalid_argument(
          "--allowed-origin takes an origin such as https://app.example.com, or '*', not '" +
          origin + "'.");
  }
  return {};
}

SiteRules::SiteRules(Options options)
    : options_([&options] {
        options.hosts.push_back(host_name());
        options.hosts.push_back("localhost");
        for (auto* list : {&options.hosts, &options.origins})
          for (std::string& item : *list) item = lower(item);
        return std::move(options);
      }()) {}

bool SiteRules::knows_host(std::string_view authority) const {
  const std::string_view host = host_of(authority);
  return !host.empty() && (is_address(host) || contains(options_.hosts, host));
}

bool SiteRules::allows(std::string_view origin) const {
  return contains(options_.origins, "*") || contains(options_.origins, origin);
}

std::optional<ApiError> SiteRules::admit(const std::optional<std::string>& host,
                                         std::string_view origin) const {
  const std::string asked = lower(host.value_or(""));
  if (host && !knows_host(asked)) {
    return ApiError{.status = 403,
                    .message = "This server is not known as '" + host->substr(0, 256) +
                               "'; start it with --allowed-host NAME to let it be.",
                    .code = "unknown_host"};
  }
  const std::string page = lower(origin);
  if (page.empty() || same_site(page, asked) || allows(page)) return std::nullopt;
  return ApiError{.status = 403,
                  .message = "Pages of '" + std::string(origin.substr(0, 256)) +
                             "' may not use this server; start it with --allowed-origin ORIGIN "
                             "to let them.",
                  .code = "foreign_origin"};
}

}  // namespace troupe
