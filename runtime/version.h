#pragma once

namespace troupe {

/// Not inline: a program of another version, for tests, is linked with another one.
extern const char* const kVersion;

}  // namespace troupe
