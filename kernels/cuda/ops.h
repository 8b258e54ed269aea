#pragma once

#include "kernels/backend.h"
#include "kernels/cuda/device.h"

/// The ops of the CUDA back-end, and of its twin.
namespace troupe::kernels::TROUPE_CUDA_SPACE {

decltype(kernels::attention) attention;
decltype(kernels::bad_rows) bad_rows;
decltype(kernels::chosen_mlp) chosen_mlp;
decltype(kernels::combine) combine;
decltype(kernels::combine_dense) combine_dense;
decltype(kernels::copy) copy;
decltype(kernels::embedding) embedding;
decltype(kernels::expert_mlp) expert_mlp;
decltype(kernels::from_wire) from_wire;
decltype(kernels::gated_mlp) gated_mlp;
decltype(kernels::join) join;
decltype(kernels::linear) linear;
decltype(kernels::moe_gate) moe_gate;
decltype(kernels::prepare) prepare;
decltype(kernels::residual_add) residual_add;
decltype(kernels::rms_norm) rms_norm;
decltype(kernels::rope) rope;
decltype(kernels::sample) sample;
decltype(kernels::silu_mul) silu_mul;
decltype(kernels::store_kv) store_kv;
decltype(kernels::to_wire) to_wire;

/// Written for being read, one thread a result where it may be: what the others are compared with.
decltype(kernels::attention) plain_attention;
decltype(kernels::chosen_mlp) plain_chosen_mlp;
decltype(kernels::expert_mlp) plain_expert_mlp;
decltype(kernels::gated_mlp) plain_gated_mlp;
decltype(kernels::linear) plain_linear;

/// All ops of one or the other.
Backend backend(bool plain, std::string_view name);

}  // namespace troupe::kernels::TROUPE_CUDA_SPACE
