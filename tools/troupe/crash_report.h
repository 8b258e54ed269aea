#pragma once

#include <span>

namespace troupe::cli {

/// `troupe crash-report JOIN HEAD NODE LIFE SIGNAL`: what a worker that crashes starts, to tell the
/// head that it was no kill. Not for people, so it is in no help. Ends within three seconds.
int report_crash(std::span<char* const> words);

}  // namespace troupe::cli
