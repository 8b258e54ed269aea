#pragma once

namespace troupe {

/// Lets the calling thread run where others leave the processors: 0 as the process, up to 19
/// behind all others. A system that refuses changes nothing.
void set_thread_nice(int nice);

}  // namespace troupe
