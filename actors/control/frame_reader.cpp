#include "actors/control/frame_reader.h"

#include <algorithm>
#include <string>

namespace troupe::control {

Status FrameReader::feed(std::span<const std::byte> bytes,
                         std::vector<std::vector<std::byte>>& frames) {
  while (!bytes.empty()) {
    if (header_size_ < kFrameHeaderBytes) {
      length_ |= static_cast<std::size_t>(bytes.front()) << (8 * header_size_++);
      bytes = bytes.subspan(1);
      if (header_size_ < kFrameHeaderBytes) continue;
      if (length_ == 0 || length_ > frame_bytes_max_)
        return corrupt("a frame claims " + std::to_string(length_) + " bytes");
    }
    const auto part = bytes.first(std::min(bytes.size(), length_ - frame_.size()));
    frame_.insert(frame_.end(), part.begin(), part.end());
    bytes = bytes.subspan(part.size());
    if (frame_.size() < length_) continue;
    frames.push_back(std::move(frame_));
    frame_ = {};
    header_size_ = length_ = 0;
  }
  return {};
}

std::vector<std::byte> frame_header(std::size_t length) {
  std::vector<std::byte> header(kFrameHeaderBytes);
  for (std::size_t i = 0; i < kFrameHeaderBytes; ++i)
    header[i] = static_cast<std::byte>(length >> (8 * i));
  return header;
}

}  // namespace troupe::control
