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
  return i;
}

/// Puts them where gather_used() has kept room.
void Sampler::find_used(kernels::SampleCall& call, const TokenHistory& history,
                        std::vector<std::int32_t>& counts) {
  kernels::UsedToken* const begin = used_.data() + call.first_used;
  kernels::UsedToken* end = begin;
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
  for (auto* used = begin; used != end; ++used) {
    std::int32_t& count = counts[static_cast<std::size_t>(used->token)];
    used->count = count - 1;
    count = 0;
  }
  call.used = static_cast<std::int32_t>(end - begin);
}

void Sampler::gather_used(kernels::Stream& stream) {
  std::int32_t room = 0;
  for (std::size_t i = 0; i < calls_.size(); ++i) {
    calls_[i].first_used = room;
    room += std::min(histories_[i].length, vocab_size_);
  }
  used_.resize(static_cast<std::size_t>(room));
  if (room == 0) return;
  const auto find = [this](int thread, std::size_t i) {
    find_used(calls_[i], histories_[i], counts_[static_cast<std::size_t>(thread)]);
  };
  if (stream.pool() != nullptr)
    stream.pool()->parallel_for(calls_.size(), find);
  else
    for (std::size_t i = 0; i < calls_.size(); ++i) find(0, i);
  auto end = used_.begin();
  for (kernels::SampleCall& call : calls_) {
    const auto from = used_.begin() + call.first_used;
    call.first_used = static_cast<std::int32_t>(end - used_.begin());
    end = std::copy(from, from + call.used, end);
  }
  used_.erase(end, used_.end());
}

void Sampler::run(kernels::Stream& stream, const kernels::Tensor& logits) {
  gather_used(stream);
  kernels::Stream::Scope scope(stream);
  // Results and what is most likely lie together, and are read at once.
  const std::size_t of_bytes = calls_.size() * sizeof(kernels::SampleResult);
  const std::size_t columns = static_cast<std::size_t>(top_columns_);
  const std::size_t top_bytes = calls_.size() * columns * sizeof(TokenLogprob);
  auto* const there = stream.scratch().take<std::byte>(of_bytes + top_bytes);
  kernels::sample(stream, logits, calls_, used_,
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
