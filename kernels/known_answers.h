#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/context.h"
#include "kernels/known_questions.h"

/// Whether this processor's cores compute what they must. The truth ships in the program:
/// known_answers.inc holds a digest of each answer for each family, made by plain scalar twins of
/// the families' definitions (tests/kernels/make_known_answers), not by the kernels themselves.
/// Every column can be made on any machine, also that of a family that the machine cannot run; the
/// tests compare the kernels of those that it can. So far `reference`, `avx2` and `avx512_bf16`
/// were, on AMD's Zen 5. `amx_bf16` was not: its twin (even and odd k of 32 as two chains of fused
/// multiply-adds) was compared with the instruction, not with our kernel.
namespace troupe::kernels {

/// XXH3-64 of the bits that the i-th question's op gives, on the calling thread. `context` has no
/// pool.
std::uint64_t ask(const Context& context, std::size_t question);

/// What it must be.
std::uint64_t known_answer(Numerics numerics, std::size_t question);

/// Whether that column was ever compared with what a processor of this maker gives. Of another one
/// the table may be what is wrong.
bool compared_here(Numerics numerics);

}  // namespace troupe::kernels
