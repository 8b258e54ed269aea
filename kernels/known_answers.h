#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/known_questions.h"
#include "kernels/stream.h"

/// Whether this processor's cores compute what they must. The truth ships in the program:
/// known_answers.inc holds a digest of each answer for each numerics, made by plain scalar twins of
/// the definition (tests/kernels/make_known_answers), not by the kernels themselves. All families
/// of instructions must give the same.
namespace troupe::kernels {

/// XXH3-64 of the bits that the i-th question's op gives with the stream's numerics and family.
std::uint64_t ask(Stream& stream, std::size_t question);

/// What it must be.
std::uint64_t known_answer(Numerics numerics, std::size_t question);

/// Whether our kernels for these instructions were ever compared with the table on a processor that
/// has them: `avx2` and `avx512` were, on AMD's Zen 5; `amx` with tiles in plain C++ only. What
/// differs elsewhere may be our kernel, not a broken core.
bool compared_here(CpuFamily family);

}  // namespace troupe::kernels
