#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "actors/api/client_session.h"
#include "runtime/result.h"

namespace troupe {

/// The number of the question that follow_operation()'s `ask` sends.
inline constexpr std::uint64_t kOperationQuery = 1;

/// Makes the session that an operation is asked for with.
using OpenSession =
    std::function<Result<std::unique_ptr<ClientSession>>(ClientSession::Events events)>;

/// Has the head do something that takes a while and waits for the end, however far off: only a head
/// that no longer answers ends the wait. `on_progress` is called by this thread. Returns the last
/// thing that the head said of it, or the error that ended it.
Result<std::string> follow_operation(
    const OpenSession& open, const std::function<Status(ClientSession&)>& ask,
    const std::function<void(const OperationProgress&)>& on_progress);

}  // namespace troupe
