#include "tools/troupe/pull/hub_connection.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "tools/troupe/pull/limits.h"

namespace troupe::pull {
namespace {

constexpr std::size_t kClientsMax = 8;

bool is_redirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

bool is_good(int status) { return status == 200 || status == 206; }

/// "https://host/path?query" taken apart.
Result<std::pair<http::Url, std::string>> split(const std::string& address) {
  const std::size_t scheme = address.find("://");
  const std::size_t path =
      scheme == address.npos ? address.npos : address.find_first_of("/?#", scheme + 3);
  auto url = http::parse_url(std::string_view(address).substr(0, path), "The redirection to");
  if (!url.ok()) return url.error();
  std::string target = path == address.npos ? "/" : address.substr(path, address.find('#') - path);
  if (!target.starts_with('/')) target.insert(0, "/");
  return std::pair(std::move(*url), std::move(target));
}

bool is_plain(std::string_view target) {
  return std::ranges::all_of(target, [](char c) { return c > ' ' && c <= '~'; });
}

/// Hands on the body of an answer that is what was asked for.
class PartReceiver : public http::HttpReceiver {
 public:
  /// `window`: over so long it must bring kBytesASecondMin.
  PartReceiver(HubConnection::Part part, Duration window,
               const std::function<Status(std::string_view)>& sink, http::HttpHead& head,
               Status& end)
      : part_(part), window_(window), sink_(sink), head_(head), end_(end) {}

  Status on_head(const http::HttpHead& head) override {
    head_ = head;
    if (head.status == 200 && part_.size != part_.of)
      return refused("it serves files only whole, which no large one can be taken as");
    return {};
  }
  Status on_body(std::string_view bytes, TimePoint at) override {
    if (!is_good(head_.status)) return {};
    if (bytes.size() > part_.size - got_) return corrupt("it sent more than was asked for");
    got_ += bytes.size();
    if (const Status taken = sink_(bytes); !taken.ok()) return taken;
    return got_ < part_.size && is_slow(at) ? deadline_exceeded("it sends too slowly") : Status();
  }
  void on_end(Status status, TimePoint) override {
    if (status.ok() && is_good(head_.status) && got_ < part_.size)
      status = corrupt("it sent less than was asked for");
    end_ = std::move(status);
  }

 private:
  bool is_slow(TimePoint at) {
    if (began_ == TimePoint{}) began_ = at;
    if (at - began_ < window_) return false;
    const double seconds = std::chrono::duration<double>(at - began_).count();
    const std::uint64_t came = got_ - std::exchange(before_, got_);
    began_ = at;
    return static_cast<double>(came) < static_cast<double>(kBytesASecondMin) * seconds;
  }

  const HubConnection::Part part_;
  const Duration window_;
  TimePoint began_{};         // of the window
  std::uint64_t before_ = 0;  // of got_, before the window
  const std::function<Status(std::string_view)>& sink_;
  http::HttpHead& head_;
  Status& end_;
  std::uint64_t got_ = 0;
};

}  // namespace

HubConnection::HubConnection(HubOptions options) : options_(std::move(options)) {}
HubConnection::~HubConnection() = default;

Result<http::HttpClient*> HubConnection::client_of(const http::Url& url) {
  http::Url server = url;
  server.path.clear();
  const auto known = clients_.find(server.text());
  if (known != clients_.end()) return known->second.get();
  if (clients_.size() >= kClientsMax) clients_.clear();
  const bool own = server.text() == [&] {
    http::Url endpoint = options_.url;
    endpoint.path.clear();
    return endpoint.text();
  }();
  auto client = http::HttpClient::make({.url = server, .api_key = own ? options_.token : ""});
  if (!client.ok()) return unavailable(client.error().message);
  return (clients_[server.text()] = std::move(*client)).get();
}

Result<HubConnection::Place> HubConnection::place_of(const std::string& target) const {
  if (!target.starts_with("http")) return Place{options_.url, options_.url.path + target};
  return redirected({options_.url, {}}, target);
}

Result<HubConnection::Place> HubConnection::redirected(const Place& from,
                                                       const std::string& location) const {
  const auto wrong = [&](const std::string& why) {
    return refused(from.url.text() + " redirects to " + why + ".");
  };
  if (!is_plain(location)) return wrong("what is no address");
  if (location.starts_with('/') && !location.starts_with("//")) return Place{from.url, location};
  auto parts = split(location);
  if (!parts.ok()) return wrong("what is no address");
  if (from.url.tls && !parts->first.tls)
    return wrong("an address without TLS, which is not followed");
  return Place{std::move(parts->first), std::move(parts->second)};
}

Status HubConnection::status_of(const http::HttpHead& head, const std::string& target) const {
  const std::string what = options_.url.text() + target.substr(0, target.find('?'));
  const std::string code = " (HTTP " + std::to_string(head.status) + ")";
  if (is_good(head.status)) return {};
  if (head.status == 401 || head.status == 403)
    return refused("The endpoint does not let us read " + what + code +
                   "; accept the model's licence there, if it has one, and set HF_TOKEN to a token "
                   "that may read it.");
  if (head.status == 404 || head.status == 410)
    return not_found("There is no " + what + code +
                     "; check the name and what stands behind its @.");
  if (head.status == 408 || head.status == 429 || head.status >= 500)
    return unavailable("The endpoint cannot give " + what + " now" + code + "; try again later.");
  return corrupt("The endpoint gives no " + what + code + ".");
}

Result<http::HttpAnswer> HubConnection::get(const std::string& target) {
  auto place = place_of(target);
  for (int hops = 0; place.ok() && hops <= kRedirectsMax; ++hops) {
    const auto client = client_of(place->url);
    if (!client.ok()) return client.error();
    auto answer = http::ask(
        **client,
        {.target = place->target, .deadline = kListingDeadline, .silence = options_.silence});
    if (!answer.ok())
      return Error{answer.error().code, place->url.text() + ": " + answer.error().message + "."};
    if (!is_redirect(answer->head.status)) {
      if (const Status good = status_of(answer->head, target); !good.ok()) return good.error();
      return answer;
    }
    place = redirected(*place, answer->head.location);
  }
  if (!place.ok()) return place.error();
  return refused(options_.url.text() + " redirects in circles.");
}

Status HubConnection::fetch(const std::string& target, const Part& part,
                            const std::function<Status(std::string_view)>& sink) {
  auto place = place_of(target);
  for (int hops = 0; place.ok() && hops <= kRedirectsMax; ++hops) {
    const auto client = client_of(place->url);
    if (!client.ok()) return client.error();
    http::HttpRequest request{
        .target = place->target, .deadline = kRequestDeadline, .silence = options_.silence};
    if (part.size != part.of)
      request.range =
          "bytes=" + std::to_string(part.first) + "-" + std::to_string(part.first + part.size - 1);
    http::HttpHead head;
    Status end;
    (*client)->send(std::move(request),
                    std::make_unique<PartReceiver>(part, options_.silence, sink, head, end));
    (*client)->run();
    // A bound that an endpoint's answer broke is the endpoint's trouble, not the disk's.
    if (!end.ok())
      return Error{end.error().code == ErrorCode::kResourceExhausted ? ErrorCode::kCorrupt
                                                                     : end.error().code,
                   place->url.text() + ": " + end.error().message + "."};
    if (!is_redirect(head.status)) return status_of(head, target);
    place = redirected(*place, head.location);
  }
  if (!place.ok()) return place.error();
  return refused(options_.url.text() + " redirects in circles.");
}

}  // namespace troupe::pull
