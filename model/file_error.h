#pragma once

#include <string>
#include <string_view>

#include "runtime/result.h"

namespace troupe {

/// What the system said about a file: "PATH WHAT: REASON; advice". kUnavailable only if the same
/// may succeed here a moment later; anything else is a matter of this machine's storage: kNotFound
/// (not there), kRefused (not allowed) or kCorrupt (it cannot be read).
Error file_error(const std::string& path, std::string_view what, int error);

}  // namespace troupe
