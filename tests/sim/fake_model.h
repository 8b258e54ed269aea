#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "model/placement/model_costs.h"
#include "runtime/ids.h"
#include "runtime/step.h"
#include "runtime/tensor_proof.h"

/// A model in small whose numbers can be known without running it: every row is a hash of its
/// context, layer by layer, and of what its experts make of it.
namespace troupe::sim {

inline constexpr int kLayers = 4;  ///< the first is dense
inline constexpr int kExperts = 6;
inline constexpr int kTopK = 2;
inline constexpr TokenId kVocab = 50;
inline constexpr TokenId kEos = 7;
/// Kills the process that computes it: no other prompt has it.
inline constexpr TokenId kPoison = kVocab;
/// The model has no number for a sequence that holds it, and says so.
inline constexpr TokenId kOdd = kVocab + 1;
inline constexpr const char* kOddTrouble = "no number";
inline constexpr std::size_t kRowBytes = sizeof(std::uint64_t);

ModelCosts costs();
bool has_experts(std::int32_t layer);

std::uint64_t mix(std::uint64_t a, std::uint64_t b);
/// A token as it enters the first layer.
std::uint64_t embed(TokenId token);
/// The experts that a row's gate chooses; all different.
std::array<std::int32_t, kTopK> gate(std::uint64_t row, std::int32_t layer);
std::uint64_t expert_output(std::uint64_t row, std::int32_t layer, std::int32_t expert);
std::uint64_t combine(std::uint64_t row, const std::array<std::uint64_t, kTopK>& outputs);
TokenOutput scored(std::uint64_t row, TokenId token, std::int32_t top);
TokenOutput sample(std::uint64_t row, const SamplingParams& sampling, std::int32_t position);

/// What a sequence must become, whatever happens to the cluster meanwhile.
struct Expected {
  std::vector<TokenOutput> output;
  FinishReason finish = FinishReason::kLength;
};
Expected expected_of(const std::vector<TokenId>& prompt, const SamplingParams& sampling,
                     std::uint32_t max_tokens, bool stops);

/// What comes of a number that was computed with something wrong; `by` 0: with nothing wrong.
std::uint64_t spoilt(std::uint64_t value, std::uint64_t by);

/// Of a tensor as it is stored; `revision` 0: as the cluster's are.
TensorProof proof_of(const std::string& name, std::uint64_t revision = 0);

}  // namespace troupe::sim
