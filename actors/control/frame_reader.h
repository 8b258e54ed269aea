#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "runtime/result.h"

namespace troupe::control {

/// Cuts a stream into frames: a length of 4 bytes, little-endian, then as many bytes. Memory grows
/// with what has come, not with what a length claims.
class FrameReader {
 public:
  explicit FrameReader(std::size_t frame_bytes_max) : frame_bytes_max_(frame_bytes_max) {}

  /// Appends the frames that `bytes` completes. Errors: kCorrupt (a length of 0 or too long);
  /// nothing may be fed after one.
  Status feed(std::span<const std::byte> bytes, std::vector<std::vector<std::byte>>& frames);

 private:
  std::size_t frame_bytes_max_;
  std::size_t header_size_ = 0;
  std::size_t length_ = 0;
  std::vector<std::byte> frame_;
};

inline constexpr std::size_t kFrameHeaderBytes = 4;
/// A frame's header; the length must fit.
std::vector<std::byte> frame_header(std::size_t length);

}  // namespace troupe::control
