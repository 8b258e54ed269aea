#include "model/sampler.h"

#include <algorithm>
#include <limits>

#include "kernels/scalar_math.h"
#include "kernels/softmax_logprob.h"
#include "runtime/limits.h"

namespace troupe {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();

/// Below this, sampling is greedy: dividing by it would tell nothing apart.
constexpr float kTemperatureMin = 1e-5f;

float without_nan(float x) { return x == x ? x : kLowest; }

/// Higher scores first, of equal ones the lower id.
auto by_rank(const float* scores) {
  return [scores](TokenId a, TokenId b) {
    return scores[a] != scores[b] ? scores[a] > scores[b] : a < b;
  };
}

float shown_logprob(const kernels::LogSoftmax& softmax, float logit) {
  const double p = softmax.logprob(logit);
  return p > kLogprobMin ? static_cast<float>(p) : kLogprobMin;  // NaN too
}

void find_top(const float* logits, std::int32_t vocab, std::size_t count,
              const kernels::LogSoftmax& softmax, std::vector<TokenLogprob>& top) {
  top.reserve(count + 1);
  for (TokenId id = 0; id < vocab; ++id) {
    const float logit = without_nan(logits[id]);
    if (top.size() == count && !(logit > top.back().logprob)) continue;
    const auto at = std::find_if(top.begin(), top.end(),
                                 [&](const auto& other) { return logit > other.logprob; });
    top.insert(at, {id, logit});
    if (top.size() > count) top.pop_back();
  }
  for (auto& entry : top) entry.logprob = shown_logprob(softmax, entry.logprob);
}

}  // namespace

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

Sampler::Sampler(std::int32_t vocab_size)
    : vocab_size_(vocab_size),
      scores_(static_cast<std::size_t>(vocab_size)),
      weights_(scores_.size()),
      counts_(scores_.size()),
      seen_(scores_.size()) {
  order_.reserve(scores_.size());
}

TokenOutput Sampler::logprobs(const float* logits, TokenId target, std::int32_t top) {
  const auto softmax = kernels::log_softmax(logits, static_cast<std::size_t>(vocab_size_));
  TokenOutput out;
  out.token = target;
  out.logprob = shown_logprob(softmax, logits[target]);
  if (top > 0) {
    const auto most = std::min<std::size_t>(limits::kTopLogprobsMax, scores_.size());
    find_top(logits, vocab_size_, std::min<std::size_t>(static_cast<std::size_t>(top), most),
             softmax, out.top);
  }
  return out;
}

TokenOutput Sampler::sample(const float* logits, const SamplingParams& params,
                            const TokenHistory& history) {
  for (std::size_t i = 0; i < scores_.size(); ++i) scores_[i] = without_nan(logits[i]);
  penalise(params, history);
  const bool greedy = !(params.temperature >= kTemperatureMin);
  const TokenId token =
      greedy ? most_likely()
             : draw(params, sampling_uniform(params.seed, params.choice, history.length));
  if (params.top_logprobs < 0) return {token, 0.0f, {}};
  return logprobs(logits, token, params.top_logprobs);
}

void Sampler::penalise(const SamplingParams& params, const TokenHistory& history) {
  const float repetition = params.repetition_penalty;
  if (repetition == 1.0f && params.presence_penalty == 0.0f && params.frequency_penalty == 0.0f)
    return;
  for (std::int32_t p = 0; p < history.length; ++p) {
    const TokenId token = history.at(p);
    if (token < 0 || token >= vocab_size_) continue;
    seen_[static_cast<std::size_t>(token)] = 1;
    if (p >= history.prompt_length) ++counts_[static_cast<std::size_t>(token)];
  }
  for (std::int32_t p = 0; p < history.length; ++p) {
    const TokenId token = history.at(p);
    if (token < 0 || token >= vocab_size_) continue;
    const auto i = static_cast<std::size_t>(token);
    if (!seen_[i]) continue;  // done already
    float& score = scores_[i];
    score = score > 0 ? score / repetition : score * repetition;
    score -= params.frequency_penalty * static_cast<float>(counts_[i]);
    if (counts_[i] > 0) score -= params.presence_penalty;
    score = without_nan(score);
    seen_[i] = 0;
    counts_[i] = 0;
  }
}

TokenId Sampler::most_likely() const {
  TokenId best = 0;
  for (TokenId id = 1; id < vocab_size_; ++id)
    if (scores_[static_cast<std::size_t>(id)] > scores_[static_cast<std::size_t>(best)]) best = id;
  return best;
}

TokenId Sampler::draw(const SamplingParams& params, double uniform) {
  const TokenId best = most_likely();
  const double highest = scores_[static_cast<std::size_t>(best)];
  // One infinite logit leaves no choice, and of none at all there is none.
  if (!(highest > std::numeric_limits<float>::lowest() &&
        highest <= std::numeric_limits<float>::max()))
    return best;
  double total = 0;
  for (std::size_t i = 0; i < scores_.size(); ++i) {
    const double weight = kernels::exp_f64((scores_[i] - highest) / params.temperature);
    weights_[i] = weight < params.min_p ? 0.0 : weight;
    total += weights_[i];
  }
  if (!(total > 0)) return best;  // min_p above 1 rules out everything
  const bool all = (params.top_k <= 0 || params.top_k >= vocab_size_) && !(params.top_p < 1.0f);
  if (!all) return draw_sorted(params, uniform, total);
  const double goal = uniform * total;
  double sum = 0;
  for (TokenId id = 0; id < vocab_size_; ++id) {
    sum += weights_[static_cast<std::size_t>(id)];
    if (sum > goal) return id;
  }
  return best;
}

/// The candidates by rank, only as many sorted as top_k and top_p can keep.
TokenId Sampler::draw_sorted(const SamplingParams& params, double uniform, double total) {
  order_.clear();
  for (TokenId id = 0; id < vocab_size_; ++id)
    if (weights_[static_cast<std::size_t>(id)] > 0) order_.push_back(id);
  const auto rank = by_rank(scores_.data());
  const auto weight = [&](std::size_t i) {
    return weights_[static_cast<std::size_t>(order_[i])];
  };
  std::size_t count = order_.size(), sorted = 0;
  const auto sort_up_to = [&](std::size_t end) {
    const auto begin = order_.begin() + static_cast<std::ptrdiff_t>(sorted);
    const auto middle = order_.begin() + static_cast<std::ptrdiff_t>(end);
    if (middle != order_.end()) std::nth_element(begin, middle, order_.end(), rank);
    std::sort(begin, middle, rank);
    sorted = end;
  };
  if (params.top_k > 0 && static_cast<std::size_t>(params.top_k) < count) {
    count = static_cast<std::size_t>(params.top_k);
    sort_up_to(count);
    total = 0;
    for (std::size_t i = 0; i < count; ++i) total += weight(i);
  }
  // top_p keeps the shortest run of the best whose probabilities reach it; never less than one.
  double kept = total;
  if (params.top_p < 1.0f) {
    const double goal = static_cast<double>(params.top_p) * total;
    std::size_t i = 0;
    for (kept = 0; i < count && (i == 0 || kept < goal); ++i) {
      if (i == sorted) sort_up_to(std::min(count, std::max<std::size_t>(64, sorted * 8)));
      kept += weight(i);
    }
    count = i;
  }
  const double goal = uniform * kept;
  double sum = 0;
  for (std::size_t i = 0; i < count; ++i) {
    sum += weight(i);
    if (sum > goal) return order_[i];
  }
  return order_[count - 1];
}

}  // namespace troupe
