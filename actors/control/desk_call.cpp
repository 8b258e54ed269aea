#include "actors/control/desk_call.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <future>
#include <utility>

#include "actors/control/dialer.h"
#include "actors/control/enrolment_text.h"
#include "actors/control/frame_reader.h"

namespace troupe::control {
namespace {

/// How late a busy machine may be with its answer that the deadline has passed.
constexpr Duration kDialerLateMax = std::chrono::seconds(1);

/// A connection that waits, up to a deadline.
class Caller {
 public:
  Caller(Dialed dialed, std::shared_ptr<TlsContext> context, TlsPurpose purpose, TimePoint until)
      : fd_(dialed.fd),
        peer_(std::move(dialed.peer)),
        purpose_(purpose),
        tls_(std::move(context)),
        until_(until) {}
  ~Caller() { ::close(fd_); }
  Caller(const Caller&) = delete;

  /// Sends the request once the head has proved itself, and waits for the one frame of the answer.
  Result<std::string> exchange(const std::string& request) {
    bool sent = false;
    std::vector<std::byte> plain;
    std::vector<std::vector<std::byte>> frames;
    FrameReader reader(kEnrolmentBytesMax);
    std::vector<char> bytes;  // says hello with none
    while (true) {
      plain.clear();
      const TlsSession::State state = tls_.receive(bytes, plain);
      if (state == TlsSession::State::kOpen && !sent) {
        if (tls_.purpose() != purpose_) return no_desk();
        sent = true;
        const auto body = std::as_bytes(std::span(request));
        if (tls_.send(frame_header(body.size()))) tls_.send(body);
      }
      if (const Status flushed = flush(); !flushed.ok()) return flushed.error();
      if (!reader.feed(plain, frames).ok()) return no_head("its answer has no length");
      if (!frames.empty())
        return std::string(reinterpret_cast<const char*>(frames[0].data()), frames[0].size());
      if (state == TlsSession::State::kFailed) return failed(sent);
      if (state == TlsSession::State::kClosed) return closed();
      auto more = receive();
      if (!more.ok()) return more.error();
      bytes = std::move(*more);
    }
  }

 private:
  Error closed() const {
    return unavailable("The head at " + peer_ + " closed the connection without an answer.");
  }

  Error no_head(const std::string& why) const { return no_head_at(peer_, why); }

  Error no_desk() const {
    return purpose_ == TlsPurpose::kRenewal
               ? unavailable("The head at " + peer_ + " renews no certificates.")
               : refused("The head at " + peer_ +
                         " takes no tokens; use its version of Troupe here too, or its join file.");
  }

  Error failed(bool was_trusted) const {
    const auto& failure = tls_.failure();
    if (!failure.foreign) return no_head(failure.text);
    if (failure.ended) return refused("The head at " + peer_ + " says that it has ended.");
    if (failure.revoked) return refused("The head at " + peer_ + " says that it was revoked.");
    if (was_trusted && purpose_ == TlsPurpose::kEnrolment) return no_desk();
    return refused("The head at " + peer_ + " belongs to another cluster than the " +
                   (purpose_ == TlsPurpose::kEnrolment
                        ? "token; use one that this head's machine made."
                        : "certificate (" + failure.text + ")."));
  }

  Status wait(short events) const {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until_ - now()).count();
    pollfd ready{fd_, events, 0};
    if (left <= 0 || ::poll(&ready, 1, static_cast<int>(std::min<long>(left, 60000))) <= 0)
      return deadline_exceeded("The head at " + peer_ + " did not answer in time.");
    return {};
  }

  Status flush() {
    std::vector<char> out;
    tls_.take_output(out);
    std::span<const char> rest = out;
    while (!rest.empty()) {
      const ssize_t sent = ::send(fd_, rest.data(), rest.size(), MSG_NOSIGNAL);
      if (sent > 0) {
        rest = rest.subspan(static_cast<std::size_t>(sent));
        continue;
      }
      if (errno != EAGAIN && errno != EINTR) return {};  // what came before tells why
      if (const Status writable = wait(POLLOUT); !writable.ok()) return writable;
    }
    return {};
  }

  Result<std::vector<char>> receive() {
    while (true) {
      if (const Status readable = wait(POLLIN); !readable.ok()) return readable.error();
      std::vector<char> bytes(kEnrolmentBytesMax);
      const ssize_t got = ::recv(fd_, bytes.data(), bytes.size(), 0);
      if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
      if (got <= 0) return closed();
      bytes.resize(static_cast<std::size_t>(got));
      return bytes;
    }
  }

  const int fd_;
  const std::string peer_;
  const TlsPurpose purpose_;
  TlsSession tls_;
  const TimePoint until_;
};

Result<Dialed> dial(const HostPort& head, TimePoint until) {
  auto dialer = Dialer::make();
  if (!dialer.ok()) return dialer.error();
  auto answer = std::make_shared<std::promise<Result<Dialed>>>();
  auto dialed = answer->get_future();
  (*dialer)->dial(head, until,
                  [answer](Result<Dialed> given) { answer->set_value(std::move(given)); });
  (void)dialed.wait_for(until - now() + kDialerLateMax);
  dialer->reset();  // whose thread answers nobody any more
  if (dialed.wait_for(Duration::zero()) == std::future_status::ready) return dialed.get();
  return deadline_exceeded("Nobody answered at " + to_string(head) + " in time.");
}

}  // namespace

Error no_head_at(const std::string& peer, const std::string& why) {
  return refused("What answers at " + peer + " is no head of Troupe: " + why +
                 "; check the address.");
}

Result<std::string> call_desk(const HostPort& head, std::shared_ptr<TlsContext> context,
                              TlsPurpose purpose, const std::string& request, Duration deadline) {
  const TimePoint until = now() + deadline;
  auto dialed = dial(head, until);
  if (!dialed.ok()) return dialed.error();
  return Caller(std::move(*dialed), std::move(context), purpose, until).exchange(request);
}

}  // namespace troupe::control
