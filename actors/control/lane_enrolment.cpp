#include "actors/control/enrolment_text.h"
#include "actors/control/lane_core.h"

namespace troupe::control {

/// Who asks for a certificate stays a stranger, also a member that asks for its next: under its
/// deadline, in its few places, and after one request and one answer it is gone.
void LaneCore::take_enrolment(Connection& connection) {
  std::vector<std::vector<std::byte>> frames;
  const Status fed = connection.frames.feed(plain_, frames);
  const bool more = frames.size() > 1 || (!frames.empty() && connection.has_asked);
  if (!fed.ok() || more || connection.raw_bytes > limits::kUnauthenticatedBytesMax)
    return hard_close(connection);
  if (frames.empty()) return;
  connection.has_asked = true;
  const auto* text = reinterpret_cast<const char*>(frames.front().data());
  const bool renews = connection.tls.purpose() == TlsPurpose::kRenewal;
  options_.enrol({connection.peer, std::string(text, frames.front().size()),
                  renews ? connection.tls.peer_name() : std::string()},
                 [core = shared_from_this(), stranger = connection.stranger](std::string reply) {
                   core->post([core = core.get(), stranger, reply = std::move(reply)] {
                     core->answer_enrolment(stranger, reply);
                   });
                 });
}

void LaneCore::answer_enrolment(std::uint64_t stranger, const std::string& reply) {
  const auto at = strangers_.find(stranger);
  if (at == strangers_.end()) return;  // it did not wait
  Connection& connection = *at->second;
  if (connection.phase != Phase::kHandshake) return;
  const auto bytes = std::as_bytes(std::span(reply));
  // No answer is a closed connection: it asks again.
  if (!reply.empty() && connection.tls.send(frame_header(bytes.size()))) connection.tls.send(bytes);
  linger(connection);
}

}  // namespace troupe::control
