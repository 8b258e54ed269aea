#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

/// AWQ's `gemm` order, which lies the other way round than all others: W [outputs, inputs] as words
/// [inputs, outputs / 8], whose nibbles are outputs 0 2 4 6 1 3 5 7.
namespace troupe::awq {

/// Codes as rows [outputs, inputs / 2]: two in a byte, the even input in the low half.
void to_rows(std::span<const std::byte> words, std::int64_t outputs, std::int64_t inputs,
             std::byte* rows);

/// Zeros, stored in the same order [groups, outputs / 8], as [outputs, groups], a byte each.
void zeros_to_rows(std::span<const std::byte> words, std::int64_t outputs, std::int64_t groups,
                   std::uint8_t* rows);

/// Scales of two bytes each: [groups, outputs] as [outputs, groups].
void scales_to_rows(std::span<const std::byte> scales, std::int64_t outputs, std::int64_t groups,
                    std::byte* rows);

}  // namespace troupe::awq
