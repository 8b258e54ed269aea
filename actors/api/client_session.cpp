#include "actors/api/client_session.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>

#include "actors/control/head_link.h"

namespace troupe {

struct ClientSession::Impl {
  Events events;
  std::string program;

  std::mutex mutex;
  std::condition_variable changed;
  bool open = false;            // guarded by mutex
  std::optional<Error> failed;  // guarded by mutex
  Address self;                 // guarded by mutex
  Address head;                 // guarded by mutex

  std::unique_ptr<HeadLink> link;  // last: its events use everything above

  Status send(MessagePtr message) {
    Envelope envelope;
    {
      std::lock_guard lock(mutex);
      if (failed) return *failed;
      envelope = {self, head, std::move(message)};
    }
    return link->send(envelope);
  }

  void fail(Error error) {
    bool was_open = false;
    {
      std::lock_guard lock(mutex);
      if (failed) return;
      was_open = open;
      failed = std::move(error);
    }
    changed.notify_all();
    if (was_open) events.down(failed->message);
  }

  void on_message(const Envelope& envelope) {
    const Message& message = *envelope.message;
    if (const auto* greeting = std::get_if<Greeting>(&message)) {
      if (common_protocol(greeting->protocol, kProtocol) == 0)
        return fail(refused("The head runs Troupe " + greeting->version +
                            ", which this program cannot talk to; use the same version."));
      {
        std::lock_guard lock(mutex);
        head = envelope.from;
        self = envelope.to;
      }
      (void)send(message_of(ClientHello{kProtocol, program}));
    } else if (std::holds_alternative<ClientWelcome>(message)) {
      {
        std::lock_guard lock(mutex);
        open = true;
      }
      changed.notify_all();
    } else if (const auto* standing = std::get_if<Standing>(&message)) {
      fail(unavailable(standing->reason));
    } else if (const auto* no = std::get_if<Refused>(&message)) {
      fail({no->code, no->reason});
    } else {
      events.message(message);
    }
  }
};

ClientSession::ClientSession(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ClientSession::~ClientSession() { close(); }

void ClientSession::close() {
  {
    std::lock_guard lock(impl_->mutex);
    if (!impl_->failed) impl_->failed = cancelled("The session was closed.");
  }
  if (impl_->link) impl_->link->close();
}

Status ClientSession::send_message(MessagePtr message) { return impl_->send(std::move(message)); }

Result<std::unique_ptr<ClientSession>> ClientSession::open(caf::actor_system& system,
                                                           const std::string& join_file,
                                                           const std::string& program,
                                                           Duration deadline, Events events) {
  const auto join = read_join_file(join_file);
  if (!join.ok()) return join.error();
  return open(system, *join, program, deadline, std::move(events));
}

Result<std::unique_ptr<ClientSession>> ClientSession::open(caf::actor_system& system,
                                                           const JoinFile& join,
                                                           const std::string& program,
                                                           Duration deadline, Events events) {
  // The head may be at any of them: one that does not answer, or is a standby, says nothing of the
  // others.
  const TimePoint end = now() + deadline;
  Error first = not_found("The join file names no head.");
  for (std::size_t i = 0; i < join.heads.size(); ++i) {
    const auto address = parse_host_port(join.heads[i]);
    if (!address.ok()) return address.error();
    auto link = make_tcp_link(system, {*address}, join.worker);
    if (!link.ok()) return link.error();
    const auto left = static_cast<Duration::rep>(join.heads.size() - i);
    auto session = open(std::move(*link), join.heads[i], program,
                        std::max<Duration>(end - now(), Duration{}) / left, events);
    if (session.ok() || !passing(session.error().code)) return session;
    if (i == 0) first = session.error();
  }
  return first;
}

Result<std::unique_ptr<ClientSession>> ClientSession::open(std::unique_ptr<HeadLink> link,
                                                           const std::string& where,
                                                           const std::string& program,
                                                           Duration deadline, Events events) {
  std::unique_ptr<ClientSession> session(new ClientSession(std::make_unique<Impl>()));
  Impl& impl = *session->impl_;
  impl.events = std::move(events);
  impl.program = program;
  impl.link = std::move(link);
  impl.link->listen({
      .up = [](const ControlWay&) {},
      .message = [&impl](Envelope envelope) { impl.on_message(envelope); },
      .down =
          [&impl](std::string reason, bool foreign) {
            impl.fail(foreign ? refused(std::move(reason)) : unavailable(std::move(reason)));
          },
  });
  impl.link->connect();
  std::unique_lock lock(impl.mutex);
  if (!impl.changed.wait_for(lock, deadline, [&] { return impl.open || impl.failed; }))
    return deadline_exceeded("The head at " + where + " did not answer in time.");
  if (impl.failed) return *impl.failed;
  return session;
}

}  // namespace troupe
