#include "tests/sim/fake_model.h"

#include <functional>

namespace troupe::sim {

ModelCosts costs() {
  ModelCosts model;
  for (int layer = 0; layer < kLayers; ++layer) model.layers.push_back({1000, has_experts(layer)});
  model.num_experts = kExperts;
  model.expert_bytes = 100;
  model.embedding_bytes = 200;
  model.head_bytes = 200;
  model.kv_bytes_per_token_layer = 4;
  return model;
}

bool has_experts(std::int32_t layer) { return layer > 0; }

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  std::uint64_t x = (a ^ (b + 0x9e3779b97f4a7c15ull)) * 0xbf58476d1ce4e5b9ull;
  x ^= x >> 29;
  x *= 0x94d049bb133111ebull;
  return x ^ (x >> 32);
}

std::uint64_t embed(TokenId token) {
  return mix(static_cast<std::uint64_t>(token), 1);
}

std::array<std::int32_t, kTopK> gate(std::uint64_t row, std::int32_t layer) {
  const std::uint64_t draw = mix(row, 1000 + static_cast<std::uint64_t>(layer));
  const auto first = static_cast<std::int32_t>(draw % kExperts);
  const auto step = static_cast<std::int32_t>(1 + (draw >> 32) % (kExperts - 1));
  return {first, (first + step) % kExperts};
}

std::uint64_t expert_output(std::uint64_t row, std::int32_t layer, std::int32_t expert) {
  return mix(row,
             5000 + static_cast<std::uint64_t>(layer) * 100 + static_cast<std::uint64_t>(expert));
}

std::uint64_t combine(std::uint64_t row, const std::array<std::uint64_t, kTopK>& outputs) {
  for (const std::uint64_t output : outputs) row = mix(row, output);
  return row;
}

TokenOutput scored(std::uint64_t row, TokenId token, std::int32_t top) {
  TokenOutput output{token, 0.0f, {}};
  if (top < 0) return output;
  output.logprob = -static_cast<float>(mix(row, static_cast<std::uint64_t>(token)) % 1000) / 100;
  for (std::int32_t k = 0; k < top; ++k)
    output.top.push_back({static_cast<TokenId>((row + static_cast<std::uint64_t>(k)) % kVocab),
                          -static_cast<float>(k)});
  return output;
}

TokenOutput sample(std::uint64_t row, const SamplingParams& sampling, std::int32_t position) {
  std::uint64_t draw = mix(row, static_cast<std::uint64_t>(position));
  if (sampling.temperature > 0) draw = mix(mix(draw, sampling.seed), sampling.choice);
  return scored(row, static_cast<TokenId>(draw % kVocab), sampling.top_logprobs);
}

Expected expected_of(const std::vector<TokenId>& prompt, const SamplingParams& sampling,
                     std::uint32_t max_tokens, bool stops) {
  Expected expected;
  std::array<std::uint64_t, kLayers> context{};
  const auto run = [&](std::uint64_t row) {
    for (int layer = 0; layer < kLayers; ++layer) {
      auto& chain = context[static_cast<std::size_t>(layer)];
      chain = mix(chain, row);
      row = mix(chain, static_cast<std::uint64_t>(layer));
      if (!has_experts(layer)) continue;
      std::array<std::uint64_t, kTopK> outputs;
      const auto chosen = gate(row, layer);
      for (std::size_t k = 0; k < kTopK; ++k) outputs[k] = expert_output(row, layer, chosen[k]);
      row = combine(row, outputs);
    }
    return row;
  };
  std::uint64_t last = 0;
  for (const TokenId token : prompt) last = run(embed(token));
  auto position = static_cast<std::int32_t>(prompt.size());
  while (expected.output.size() < max_tokens) {
    expected.output.push_back(sample(last, sampling, position++));
    const TokenId token = expected.output.back().token;
    if (stops && token == kEos) {
      expected.finish = FinishReason::kStop;
      break;
    }
    last = run(embed(token));
  }
  return expected;
}

std::uint64_t spoilt(std::uint64_t value, std::uint64_t by) {
  return by == 0 ? value : mix(value, by);
}

TensorProof proof_of(const std::string& name, std::uint64_t revision) {
  return {name, "model.safetensors", {{std::hash<std::string>{}(name), revision}}, {}};
}

}  // namespace troupe::sim
