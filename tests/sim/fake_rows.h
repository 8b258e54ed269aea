#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "runtime/buffer.h"
#include "tests/sim/fake_model.h"

/// Rows of the simulation's model on their way: numbers of kRowBytes.
namespace troupe::sim {

inline std::uint64_t read_row(std::span<const std::byte> bytes, std::size_t row) {
  std::uint64_t value = 0;
  std::memcpy(&value, bytes.data() + row * kRowBytes, kRowBytes);
  return value;
}

inline Payload write_rows(const std::vector<std::uint64_t>& rows) {
  auto buffer = std::make_shared<Buffer>(std::max<std::size_t>(1, rows.size()) * kRowBytes);
  if (!rows.empty()) std::memcpy(buffer->data(), rows.data(), rows.size() * kRowBytes);
  Payload payload = Payload::of(std::move(buffer));
  payload.bytes = payload.bytes.first(rows.size() * kRowBytes);
  return payload;
}

}  // namespace troupe::sim
