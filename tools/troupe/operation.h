#pragma once

#include <functional>
#include <string>

#include "actors/api/operation.h"
#include "runtime/ids.h"
#include "runtime/result.h"

namespace troupe::cli {

/// A node as status prints it ("node-3"), or its number.
Result<NodeId> parse_node(const std::string& text);

/// Has the head do something that takes a while, prints its progress to stderr, and waits for the
/// end, however far off: only a head that no longer answers ends the wait. `ask` sends the
/// question, under the number kOperationQuery. `program` names the command in the head's log.
/// Returns the last thing that the head said of it.
Result<std::string> follow_operation(const std::string& state_dir, const std::string& program,
                                     const std::function<Status(ClientSession&)>& ask);

/// Whether a head answers.
Status seek_head(const std::string& state_dir, const std::string& program);

}  // namespace troupe::cli
