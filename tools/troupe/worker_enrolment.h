#pragma once

#include <string>

#include "runtime/result.h"

namespace troupe::cli {

/// Turns a token into a join file at `join_path`, unless one of the token's cluster is there: it
/// was made at an earlier start. If the certificate in it has ended, the token gives the next.
/// Keeps seeking the head until it answers; SIGTERM and Ctrl-C end the process meanwhile. Errors:
/// kInvalidArgument (the token, or no head is named), kRefused.
Status enrol_worker(const std::string& token, const std::string& head,
                    const std::string& join_path);

}  // namespace troupe::cli
