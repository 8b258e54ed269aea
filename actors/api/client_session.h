#pragma once

#include <functional>
#include <memory>
#include <string>

#include "actors/control/credentials.h"
#include "runtime/clock.h"
#include "runtime/result.h"
#include "transport/message.h"

namespace caf {
class actor_system;
}

namespace troupe {

class HeadLink;

/// A program's session with a head, as a client: what `status`, `stop` and the embedding API talk
/// through.
class ClientSession {
 public:
  /// Told from the control lane's thread; must not block.
  struct Events {
    std::function<void(const Message&)> message;
    std::function<void(const std::string& reason)> down;  ///< once, at the end of an open session
  };
  /// The same over a link of one's own, to a head in this process. `where` names it for people.
  static Result<std::unique_ptr<ClientSession>> open(std::unique_ptr<HeadLink> link,
                                                     const std::string& where,
                                                     const std::string& program, Duration deadline,
                                                     Events events);
  /// Connects with the join file's certificate and says hello. Errors: kNotFound (no join file),
  /// kUnavailable (nobody answers), kRefused (protocol), kDeadlineExceeded.
  static Result<std::unique_ptr<ClientSession>> open(caf::actor_system& system,
                                                     const std::string& join_file,
                                                     const std::string& program, Duration deadline,
                                                     Events events);
  /// The same with what a join file holds.
  static Result<std::unique_ptr<ClientSession>> open(caf::actor_system& system,
                                                     const JoinFile& join,
                                                     const std::string& program, Duration deadline,
                                                     Events events);
  ~ClientSession();

  /// Ends the session; later sends fail. `down` may not be told.
  void close();

  template <class T>
  Status send(T&& content) {
    return send_message(message_of(std::forward<T>(content)));
  }

 private:
  struct Impl;
  explicit ClientSession(std::unique_ptr<Impl> impl);
  Status send_message(MessagePtr message);
  std::unique_ptr<Impl> impl_;
};

}  // namespace troupe
