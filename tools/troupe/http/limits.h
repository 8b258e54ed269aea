#pragma once

#include <chrono>
#include <cstddef>

#include "runtime/clock.h"

namespace troupe::http {

// The server may be anything: what it can make this program keep or wait for has a bound.

/// Of an answer's head, and of what may follow its last chunk: no server needs more.
inline constexpr std::size_t kHeadBytesMax = 64 << 10;
/// Of the line before a chunk, with extensions that nobody asked for.
inline constexpr std::size_t kChunkLineBytesMax = 1024;
/// One answer: 128k tokens of log-probabilities fit, an endless one does not.
inline constexpr std::size_t kAnswerBytesMax = 64 << 20;
/// A connection that is not there after that long is a failed request.
inline constexpr Duration kConnectDeadline = std::chrono::seconds(10);

}  // namespace troupe::http
