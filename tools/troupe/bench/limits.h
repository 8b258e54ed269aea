#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "runtime/clock.h"
#include "tools/troupe/http/limits.h"

namespace troupe::bench {

// The server under load may be anything: what it can make this program keep or wait for has a
// bound.

/// One server-sent event.
inline constexpr std::size_t kEventBytesMax = 4 << 20;
static_assert(kEventBytesMax <= http::kAnswerBytesMax);
/// What is kept of each answer's text: for the result file, and as a session's history.
inline constexpr std::size_t kTextBytesMax = 1 << 20;
/// A model's name that the server tells: with a date and so on it is a file's.
inline constexpr std::size_t kModelBytesMax = 200;
/// What is kept of an error's text.
inline constexpr std::size_t kErrorBytesMax = 300;

/// Requests of a run: each keeps about 200 bytes, and four for each token of its answer.
inline constexpr std::size_t kPromptsMax = 1'000'000;
/// Those of a run that was not told how many, and of a series' run for each of its streams.
inline constexpr std::uint64_t kPromptsDefault = 1000, kPromptsPerStream = 10;
static_assert(kPromptsDefault <= kPromptsMax);
/// Tokens of one prompt.
inline constexpr std::uint64_t kPromptTokensMax = 10'000'000;
/// A file of conversations.
inline constexpr std::size_t kDatasetBytesMax = std::size_t{2} << 30;
/// A result file to compare, each request's figures included.
inline constexpr std::size_t kResultBytesMax = std::size_t{256} << 20;
/// Points of a sweep, those that look closer included, and of a series.
inline constexpr int kSweepPointsMax = 64;

/// What is asked beside the load: names, token ids, the cluster's status.
inline constexpr Duration kAskDeadline = std::chrono::seconds(10);
/// Longest wait that a Retry-After is granted.
inline constexpr Duration kRetryAfterMax = std::chrono::seconds(60);

/// How often the loop looks how late it is.
inline constexpr Duration kLagInterval = std::chrono::milliseconds(5);
/// Looks that are kept, an hour and more of them.
inline constexpr std::size_t kLagSamplesMax = 1'000'000;
/// From here on the client's own lateness shows in the figures.
inline constexpr double kLagMsMax = 10;
/// Share of one processor from which on the loop has no room left.
inline constexpr double kBusyShareMax = 0.9;

}  // namespace troupe::bench
