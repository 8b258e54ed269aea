#include "actors/control/lane_core.h"
#include "runtime/log.h"

namespace troupe::control {

void LaneCore::fail_handshake(Connection& connection) {
  const TlsSession::Failure& failure = connection.tls.failure();
  if (server()) {
    if (failure.foreign)
      stranger_lines_.warn(
          connection.peer + " was refused: its certificate " +
              (failure.ended     ? "has ended."
               : failure.revoked ? "was revoked."
                                 : "is not of this cluster (" + failure.text + ")."),
          now());
    return end(connection, {SessionEndKind::kForeign, failure.text}, true);
  }
  if (failure.foreign) {
    const std::string what =
        failure.ended ? " says that this machine's certificate has ended; copy the join file from "
                        "the head again, or join with a new --token."
        : failure.revoked
            ? " says that this machine's certificate was revoked; to come back, remove the join "
              "file, and join with a new --token."
            : " belongs to another cluster than the join file (" + failure.text +
                  "); use the join file that this head wrote.";
    return end(connection, {SessionEndKind::kForeign, "The head at " + connection.peer + what},
               true);
  }
  end(connection,
      {SessionEndKind::kGarbage, "What answers at " + connection.peer + " is no head of Troupe: " +
                                     failure.text + "; check the address."},
      true);
}

void LaneCore::use(std::shared_ptr<TlsContext> context) {
  context_ = std::move(context);
  std::vector<Connection*> revoked;
  for (const auto& [session, connection] : sessions_)
    if (context_->revokes(connection->tls.peer_name())) revoked.push_back(connection);
  for (Connection* connection : revoked) {
    const std::string why = "its certificate " + connection->tls.peer_name() + " was revoked";
    logger().warn("{} is cut off: {}.", connection->peer, why);
    end(*connection, {SessionEndKind::kForeign, why}, false);
  }
}

}  // namespace troupe::control
