#include "model/sampler.h"

#include <algorithm>
#include <cstring>

#include "runtime/limits.h"

namespace troupe {

std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> c,
                                        std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53} * c[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<std::uint32_t>(b >> 32) ^ c[1] ^ key[0], static_cast<std::uint32_t>(b),
         static_cast<std::uint32_t>(a >> 32) ^ c[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return c;
}

double sampling_uniform(std::uint64_t seed, std::uint32_t choice, std::int32_t position) {
  const auto words =
      philox4x32({choice, static_cast<std::uint32_t>(position), 0, 0},
                 {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
  const std::uint64_t bits = (std::uint64_t{words[0]} << 32 | words[1]) >> 11;
  return static_cast<double>(bits) * (1.0 / 9007199254740992.0);  // 2^-53
}

Sampler::Sampler(std::int32_t vocab_size, int threads)
    : vocab_size_(vocab_size),
      counts_(static_cast<std::size_t>(threads),
              std::vector<std::int32_t>(static_cast<std::size_t>(vocab_size))) {}

void Sampler::clear() {
  calls_.clear();
  histories_.clear();
  rules_.clear();
  masks_.clear();
  top_columns_ = 0;
}

std::size_t Sampler::logprobs(std::int64_t row, TokenId target, std::int32_t top) {
  kernels::SampleCall call;
  call.row = row;
  call.target = target;
  const auto most = std::min(static_cast<std::int32_t>(limits::kTopLogprobsMax), vocab_size_);
  call.top = std::clamp(top, 0, most);
  top_columns_ = std::max(top_columns_, call.top);
  calls_.push_back(call);
  histories_.emplace_back();
  rules_.emplace_back();
  return calls_.size() - 1;
}

std::size_t Sampler::sample(std::int64_t row, const SamplingParams& params,
                            const TokenHistory& history) {
  const std::size_t i = logprobs(row, -1, params.top_logprobs);
  kernels::SampleCall& call = calls_.back();
  if (params.top_logprobs < 0) call.top = -1;
  call.temperature = params.temperature;
  call.top_p = params.top_p;
  call.min_p = params.min_p;
  call.top_k = params.top_k;
  call.repetition_penalty = params.repetition_penalty;
  call.presence_penalty = params.presence_penalty;
  call.frequency_penalty = params.frequency_penalty;
  call.uniform = sampling_uniform(params.seed, params.choice, history.length);
  if (params.repetition_penalty != 1.0f || params.presence_penalty != 0.0f ||
      params.frequency_penalty != 0.0f)
    histories_.back() = history;
  if (params.rules && !params.rules->bias.empty()) rules_.back() = params.rules;
  return i;
}

void Sampler::use_mask(std::size_t call) {
  const auto words = static_cast<std::size_t>(kernels::mask_words(vocab_size_));
  calls_[call].mask = static_cast<std::int32_t>(masks_.size() / words);
  masks_.resize(masks_.size() + words);
}

std::span<std::uint32_t> Sampler::mask(std::size_t call) {
  const auto words = static_cast<std::size_t>(kernels::mask_words(vocab_size_));
  return std::span(masks_).subspan(static_cast<std::size_t>(calls_[call].mask) * words, words);
}

/// Puts them where gather_adjusted() has kept room.
void Sampler::find_adjusted(std::size_t call, std::vector<std::int32_t>& counts) {
  const TokenHistory& history = histories_[call];
  const std::span<const TokenBias> bias =
      rules_[call] ? std::span(rules_[call]->bias) : std::span<const TokenBias>();
  kernels::AdjustedToken* const begin = adjusted_.data() + calls_[call].first_adjusted;
  kernels::AdjustedToken* end = begin;
  for (std::int32_t p = 0; p < history.length; ++p) {
    const TokenId token = history.at(p);
    if (token < 0 || token >= vocab_size_) continue;
    std::int32_t& count = counts[static_cast<std::size_t>(token)];  // and 1, once it is seen
    if (count == 0) {
      *end++ = {token, 0};
      count = 1;
    }
    if (p >= history.prompt_length) ++count;
  }
  kernels::AdjustedToken* const used_end = end;
  for (const TokenBias& of : bias)
    if (counts[static_cast<std::size_t>(of.token)] == 0) *end++ = {of.token, -1, of.bias};
  for (auto* used = begin; used != used_end; ++used) {
    std::int32_t& count = counts[static_cast<std::size_t>(used->token)];
    used->count = count - 1;
    count = 0;
    const auto of = std::ranges::lower_bound(bias, used->token, {}, &TokenBias::token);
    if (of != bias.end() && of->token == used->token) used->bias = of->bias;
  }
  calls_[call].adjusted = static_cast<std::int32_t>(end - begin);
}

void Sampler::gather_adjusted(kernels::Stream& stream) {
  std::int32_t room = 0;
  for (std::size_t i = 0; i < calls_.size(); ++i) {
    calls_[i].first_adjusted = room;
    room += std::min(histories_[i].length, vocab_size_);
    if (rules_[i]) room += static_cast<std::int32_t>(rules_[i]->bias.size());
  }
  adjusted_.resize(static_cast<std::size_t>(room));
  if (room == 0) return;
  const auto find = [this](int thread, std::size_t i) {
    find_adjusted(i, counts_[static_cast<std::size_t>(thread)]);
  };
  if (stream.pool() != nullptr)
    stream.pool()->parallel_for(calls_.size(), find);
  else
    for (std::size_t i = 0; i < calls_.size(); ++i) find(0, i);
  auto end = adjusted_.begin();
  for (kernels::SampleCall& call : calls_) {
    const auto from = adjusted_.begin() + call.first_adjusted;
    call.first_adjusted = static_cast<std::int32_t>(end - adjusted_.begin());
    end = std::copy(from, from + call.adjusted, end);
  }
  adjusted_.erase(end, adjusted_.end());
}

void Sampler::run(kernels::Stream& stream, const kernels::Tensor& logits) {
  gather_adjusted(stream);
  kernels::Stream::Scope scope(stream);
  // Results and what is most likely lie together, and are read at once.
  const std::size_t of_bytes = calls_.size() * sizeof(kernels::SampleResult);
  const std::size_t columns = static_cast<std::size_t>(top_columns_);
  const std::size_t top_bytes = calls_.size() * columns * sizeof(TokenLogprob);
  auto* const there = stream.scratch().take<std::byte>(of_bytes + top_bytes);
  kernels::sample(stream, logits, calls_, {adjusted_, masks_},
                  {reinterpret_cast<kernels::SampleResult*>(there),
                   reinterpret_cast<TokenLogprob*>(there + of_bytes), top_columns_});
  results_.resize(calls_.size());
  top_.resize(calls_.size() * columns);
  const std::byte* const here = stream.read(there, of_bytes + top_bytes);
  std::memcpy(results_.data(), here, of_bytes);
  if (top_bytes > 0) std::memcpy(top_.data(), here + of_bytes, top_bytes);
}

TokenOutput Sampler::output(std::size_t call) const {
  TokenOutput out{results_[call].token, results_[call].logprob, {}};
  const auto first = top_.begin() + static_cast<std::ptrdiff_t>(call) * top_columns_;
  if (calls_[call].top > 0) out.top.assign(first, first + calls_[call].top);
  return out;
}

}  // namespace troupe
