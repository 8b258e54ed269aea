#pragma once

#include <chrono>
#include <cstdint>

/// How long the Supervisor waits for what, beside what runtime/limits.h bounds for everyone.
namespace troupe {

/// New requests may wait this long for a cluster that cannot serve and knows no way back; after it
/// they are told to come again.
inline constexpr auto kPatience = std::chrono::seconds(5);
/// After a change a new goal is made this much later: changes come in bursts.
inline constexpr auto kGoalDelay = std::chrono::milliseconds(300);
/// How often the experts' load is looked at, and how often it may give them a new layout.
inline constexpr auto kBalanceCheckEvery = std::chrono::seconds(5);
inline constexpr auto kBalanceEvery = std::chrono::seconds(30);
/// A device that is slow for this long counts as slow: what lasts shorter is noise.
inline constexpr auto kSlowAfter = std::chrono::seconds(2);
/// A device that is slow for this long is drained; before, it is only asked less.
inline constexpr auto kSlowDrainAfter = std::chrono::seconds(30);
/// A second report within this time means that the new connection broke or never came.
inline constexpr auto kLinkMemory = std::chrono::seconds(10);
/// What both ends say of the same attempt comes within this time; later it is about the next one.
inline constexpr auto kSameAttempt = std::chrono::seconds(1);
/// How long a node that was fenced for a link takes no part, doubled each time.
inline constexpr auto kQuarantineMin = std::chrono::seconds(1);
inline constexpr auto kQuarantineMax = std::chrono::seconds(30);
/// How long a node that failed a proof again takes nothing new, doubled each time.
inline constexpr auto kDoubtMin = std::chrono::seconds(10);
inline constexpr auto kDoubtMax = std::chrono::minutes(10);
/// A member that has begun to read and shows no progress for this long (and for as long as its
/// largest piece takes at kSlowStorageBytesPerSecond) is left out of the next plan, if the others
/// can do without it; limits::kLoadProgressDeadline bounds the wait for one that is needed.
inline constexpr auto kLoadSilence = std::chrono::seconds(4);
inline constexpr std::uint64_t kSlowStorageBytesPerSecond = 50u << 20;
/// How long a node that could not load its part takes nothing new if the others have room, doubled
/// each time in a row.
inline constexpr auto kClosedMin = std::chrono::seconds(30);
inline constexpr auto kClosedMax = std::chrono::minutes(10);
/// A node whose loads failed and that is given nothing new is not waited for any longer than this:
/// it follows when it can.
inline constexpr auto kBehindAfter = std::chrono::seconds(1);
/// A node that was fenced for a link and kept out of trouble for this long is as good as new.
inline constexpr auto kQuarantineForget = std::chrono::minutes(2);

}  // namespace troupe
