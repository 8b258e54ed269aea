#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "runtime/clock.h"
#include "tools/troupe/http/limits.h"

namespace troupe::pull {

/// What one request asks for, and what a cut of the process may lose of one connection.
inline constexpr std::uint64_t kChunkBytes = 16u << 20;
static_assert(kChunkBytes <= http::kAnswerBytesMax);
/// The largest checkpoints have some hundred files.
inline constexpr std::size_t kFilesMax = 20'000;
inline constexpr std::size_t kPagesMax = 50;
/// Of all files of a repository together.
inline constexpr std::uint64_t kRepositoryBytesMax = std::uint64_t{64} << 40;
inline constexpr std::size_t kPathBytesMax = 1024;
inline constexpr std::size_t kNameBytesMax = 255;
inline constexpr int kRedirectsMax = 5;
/// Requests to one server that bring nothing, one after the other, before the next one's turn.
inline constexpr int kTriesMax = 4;
/// What is less is nothing, where there is another server.
inline constexpr std::uint64_t kProgressBytesMin = 256 << 10;
/// A connection that brings less than that each second, over as long as a server may be silent, is
/// given up.
inline constexpr std::uint64_t kBytesASecondMin = 8 << 10;
/// A page of a listing, however slowly its bytes trickle.
inline constexpr Duration kListingDeadline = std::chrono::minutes(2);
/// One request, however slowly its bytes trickle.
inline constexpr Duration kRequestDeadline = std::chrono::minutes(10);
inline constexpr Duration kRetryPause = std::chrono::milliseconds(200);
inline constexpr Duration kRetryPauseMax = std::chrono::seconds(30);

}  // namespace troupe::pull
