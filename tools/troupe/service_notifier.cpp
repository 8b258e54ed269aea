#include "tools/troupe/service_notifier.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "runtime/log.h"

namespace troupe::cli {
namespace {

constexpr Duration kLookEvery = std::chrono::seconds(1);
/// systemd means no more than some seconds; what is shorter would be a busy loop.
constexpr Duration kWatchdogMin = std::chrono::milliseconds(20);
/// A status is for one line of `systemctl status`.
constexpr std::size_t kStatusBytesMax = 400;

/// The variable's value, which is then gone from the environment.
std::string take(const char* name) {
  const char* value = std::getenv(name);
  std::string text = value ? value : "";
  unsetenv(name);
  return text;
}

std::optional<std::int64_t> number_of(const std::string& text) {
  std::int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, number);
  if (parsed.ec != std::errc() || parsed.ptr != end || number <= 0) return std::nullopt;
  return number;
}

/// An assignment a line: a status of several lines would be taken for others.
std::string one_line_of(std::string text) {
  std::size_t size = std::min(text.size(), kStatusBytesMax);
  // Not within a character.
  while (size > 0 && size < text.size() && (text[size] & 0xC0) == 0x80) --size;
  text.resize(size);
  std::ranges::replace_if(
      text, [](unsigned char c) { return c < 0x20 || c == 0x7f; }, ' ');
  return text;
}

}  // namespace

ServiceNotifier::ServiceNotifier() {
  const std::string path = take("NOTIFY_SOCKET");
  const auto usec = number_of(take("WATCHDOG_USEC"));
  const std::string pid = take("WATCHDOG_PID");
  if (path.empty()) return;
  if ((path[0] != '/' && path[0] != '@') || path.size() >= sizeof address_.sun_path) {
    logger().warn("NOTIFY_SOCKET is no address of a socket; the service manager is told nothing");
    return;
  }
  address_.sun_family = AF_UNIX;
  std::memcpy(address_.sun_path, path.data(), path.size());
  if (path[0] == '@') address_.sun_path[0] = '\0';  // an abstract one: its name has no end
  address_size_ = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size() +
                                         (path[0] == '/' ? 1 : 0));
  socket_ = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (usec && (pid.empty() || number_of(pid) == getpid()))
    watchdog_ = std::max(Duration(std::chrono::microseconds(*usec)) / 3, kWatchdogMin);
}

ServiceNotifier::~ServiceNotifier() {
  stop();
  if (socket_ >= 0) ::close(socket_);
}

void ServiceNotifier::start(Source source) {
  if (socket_ < 0) return;
  thread_ = std::thread([this, source = std::move(source)] { run(source); });
}

void ServiceNotifier::stop() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
  send("STOPPING=1");
}

void ServiceNotifier::run(const Source& source) {
  bool ready = false;
  std::string told;
  auto next_look = std::chrono::steady_clock::now(), next_alive = next_look;
  const auto pause = watchdog_ ? std::min(kLookEvery, *watchdog_) : kLookEvery;
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    lock.unlock();
    const auto time = std::chrono::steady_clock::now();
    if (time >= next_look) {
      next_look = time + kLookEvery;
      const State state = source.state();
      const std::string status = one_line_of(state.status);
      if (status != told && send("STATUS=" + status)) told = status;
      if (state.ready && !ready) ready = send("READY=1");
    }
    if (watchdog_ && time >= next_alive && source.alive()) {
      next_alive = time + *watchdog_;
      send("WATCHDOG=1");
    }
    lock.lock();
    changed_.wait_for(lock, pause, [this] { return stopping_; });
  }
}

bool ServiceNotifier::send(const std::string& message) const {
  return ::sendto(socket_, message.data(), message.size(), MSG_NOSIGNAL,
                  reinterpret_cast<const sockaddr*>(&address_),
                  address_size_) == static_cast<ssize_t>(message.size());
}

}  // namespace troupe::cli
