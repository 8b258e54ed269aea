#pragma once

#include <cstdint>

#include "kernels/known_questions.h"
#include "runtime/numerics.h"

namespace troupe::kernels {

/// The digest that ask() must give, by the scalar twins of the definition alone. Nothing in them is
/// fast, vectorised by hand, packed or paged.
std::uint64_t twin_answer(Numerics numerics, std::size_t question);

}  // namespace troupe::kernels
