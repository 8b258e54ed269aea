#pragma once

#include "runtime/result.h"

namespace troupe::cli {

/// Exit codes of every command.
inline constexpr int kDone = 0, kFailed = 1, kUsage = 2;

/// Prints an error to stderr, as every command does.
int fail(const Error& error, int code = kFailed);
/// The exit code that fits: wrong usage for a bad argument, failed for the rest.
int fail_with(const Error& error);

}  // namespace troupe::cli
