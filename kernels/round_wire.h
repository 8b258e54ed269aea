#pragma once

#include "kernels/context.h"
#include "kernels/matrix.h"
#include "runtime/numerics.h"

namespace troupe::kernels {

/// Rounds x [rows, d] to the wire type: out is dense [rows, d] of `type`. bf16 rounds to nearest,
/// ties to even.
void to_wire(const Context& ctx, WireType type, ConstRows x, void* out);

/// Widens a dense [rows, d] of `type` to float32.
void from_wire(const Context& ctx, WireType type, const void* in, Rows y);

/// x becomes what it would be after a journey: to_wire and back, in place.
void round_to_wire(const Context& ctx, WireType type, Rows x);

}  // namespace troupe::kernels
