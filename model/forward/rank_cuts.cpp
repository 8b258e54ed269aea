#include "model/forward/rank_cuts.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>

#include "kernels/copy.h"
#include "kernels/join.h"
#include "model/spec/split_model.h"
#include "runtime/limits.h"

namespace troupe {
namespace {

std::size_t bytes_of(std::int64_t rows, std::int64_t width) {
  return static_cast<std::size_t>(rows * width) * sizeof(float);
}

/// What says nothing but that it came.
constexpr std::size_t kWord = 1;
Payload word() {
  static const auto bytes = std::make_shared<const Buffer>(kWord);
  return Payload::of(bytes);
}

float* row_of(const kernels::Tensor& x, std::int64_t row) {
  return static_cast<float*>(x.data) + row * x.row_stride;
}

}  // namespace

RankCuts::RankCuts(const ModelSpec& model)
    : model_(model),
      in_step_(std::all_of(model.layers.begin(), model.layers.end(), [&](const LayerSpec& layer) {
        return layer.attention.ways == model.rank.size;
      })) {}

kernels::Tensor RankCuts::outgoing(kernels::Stream& stream, Step& step, std::int64_t rows,
                                   std::int64_t width) {
  room(stream, step, bytes_of(rows, width));
  return stream.device_tensor(step.own_at, DType::kF32, rows, width);
}

void RankCuts::room(kernels::Stream& stream, Step& step, std::size_t bytes) {
  step.exchange.own.reset();
  auto& owns = step.plan->express ? express_owns_ : owns_;
  auto room = std::find_if(owns.begin(), owns.end(), [&](const auto& own) {
    return own.use_count() == 1 && own->here->size() >= bytes;
  });
  if (room == owns.end()) {
    // Too small ones go: steps grow until they are as large as they will be.
    std::erase_if(owns,
                  [&](const auto& o) { return o.use_count() == 1 && o->here->size() < bytes; });
    RankOwn own = {stream.host_buffer(bytes), nullptr};
    if (stream.accelerator() != nullptr) own.there = stream.memory(bytes);
    owns.push_back(std::make_shared<RankOwn>(std::move(own)));
    room = std::prev(owns.end());
  }
  step.exchange.own = *room;
  step.exchange.own_bytes = bytes;
  step.own_at = (*room)->there ? (*room)->there.get() : (*room)->here->data();
}

void RankCuts::settle(kernels::Stream& stream, Step& step) const {
  const RankExchange& e = step.exchange;
  if (!stays_) stream.fetch(e.own->here, step.own_at, e.own_bytes);
  stream.wait();
  clear(step);
}

Payload RankCuts::own_part(kernels::Stream& stream, const Step& step, std::size_t at,
                           std::size_t bytes) const {
  if (bytes == 0) return {};
  const std::shared_ptr<RankOwn>& own = step.exchange.own;
  const auto here = own->here->span().subspan(at, bytes);
  if (!stays_) return {own, here, own->here->memory()};
  return {own, here, MemoryKind::kDevice, step.own_at + at, stream.accelerator()};
}

void RankCuts::clear(Step& step) const {
  RankExchange& e = step.exchange;
  ++e.index;
  e.to.assign(model_.rank.size, {});
  e.from.assign(model_.rank.size, {});
  e.bytes.assign(model_.rank.size, 0);
  step.rank_rooms.resize(model_.rank.size);
}

std::uint32_t RankCuts::part(std::uint32_t rank, std::uint32_t ways) const {
  return part_of({rank, model_.rank.size}, ways);
}

/// The first of those that have the same part.
bool RankCuts::speaks(std::uint32_t rank, std::uint32_t ways) const {
  return speaker_of(part(rank, ways), model_.rank, ways) == rank;
}

// --- Sums ---------------------------------------------------------------------------------------

bool RankCuts::scatters(std::int64_t rows) const {
  return model_.rank.size > 2 && bytes_of(rows, model_.hidden) >= limits::kScatterBytes;
}

void RankCuts::send_sum(kernels::Stream& stream, Step& step, std::uint32_t ways,
                        bool own_rows_only) const {
  settle(stream, step);
  RankExchange& e = step.exchange;
  const std::uint32_t self = model_.rank.rank;
  const auto rows_to = [&](std::uint32_t rank) {
    return own_rows_only ? own_rows(step.rows, rank) : step.rows;
  };
  for (std::uint32_t rank = 0; rank < model_.rank.size; ++rank) {
    if (part(rank, ways) == part(self, ways)) continue;
    if (speaks(self, ways))
      e.to[rank] = own_part(stream, step,
                            own_rows_only ? bytes_of(first_row(step.rows, rank), step.width) : 0,
                            bytes_of(rows_to(rank), step.width));
    if (speaks(rank, ways)) e.bytes[rank] = bytes_of(rows_to(self), step.width);
  }
}

void RankCuts::take_sum(kernels::Stream& stream, Step& step, std::uint32_t ways, const float* bias,
                        const kernels::Tensor& y, std::int64_t first_row) const {
  std::array<const float*, limits::kSumSlices> parts{};
  for (std::uint32_t part = 0; part < ways; ++part) {
    const std::uint32_t rank = speaker_of(part, model_.rank, ways);
    parts[part] = part == part_of(model_.rank, ways)
                      ? reinterpret_cast<const float*>(step.own_at) + first_row * step.width
                      : reinterpret_cast<const float*>(
                            stream.reach(step.exchange.from[rank], step.rank_rooms[rank]));
  }
  kernels::join(stream, std::span(parts).first(ways), bias, y);
}

// --- Rows ---------------------------------------------------------------------------------------

void RankCuts::send_rows(kernels::Stream& stream, Step& step) const {
  settle(stream, step);
  RankExchange& e = step.exchange;
  for (std::uint32_t rank = 0; rank < model_.rank.size; ++rank) {
    if (rank == model_.rank.rank) continue;
    e.to[rank] = own_part(stream, step, 0, bytes_of(own_rows(step.rows), step.width));
    e.bytes[rank] = bytes_of(own_rows(step.rows, rank), step.width);
  }
}

void RankCuts::take_rows(kernels::Stream& stream, const Step& step,
                         const kernels::Tensor& all) const {
  for (std::uint32_t rank = 0; rank < model_.rank.size; ++rank) {
    const std::int64_t rows = own_rows(step.rows, rank);
    if (rows > 0 && rank != model_.rank.rank)  // its own are there
      stream.write(row_of(all, first_row(step.rows, rank)), step.exchange.from[rank]);
  }
}

// --- The vocabulary -----------------------------------------------------------------------------

std::uint32_t RankCuts::own_part() const { return part_of(model_.rank, model_.vocab_ways); }

std::int32_t RankCuts::first_token(std::uint32_t part) const {
  return static_cast<std::int32_t>(std::int64_t{model_.vocab} * part / model_.vocab_ways);
}

void RankCuts::send_embedded(kernels::Stream& stream, Step& step) const {
  settle(stream, step);
  RankExchange& e = step.exchange;
  const std::uint32_t ways = model_.vocab_ways;
  const auto tokens_of = [&](std::uint32_t part) {
    return std::count_if(step.tokens.begin(), step.tokens.end(), [&](TokenId token) {
      return token >= first_token(part) && token < first_token(part + 1);
    });
  };
  for (std::uint32_t part = 0; part < ways; ++part) {
    const std::uint32_t speaker = speaker_of(part, model_.rank, ways);
    if (part != own_part()) e.bytes[speaker] = bytes_of(tokens_of(part), step.width);
    if (speaker != model_.rank.rank) continue;
    for (std::uint32_t rank = 0; rank < model_.rank.size; ++rank)
      if (this->part(rank, ways) != part)
        e.to[rank] = own_part(stream, step, 0, bytes_of(tokens_of(part), step.width));
  }
}

void RankCuts::take_embedded(kernels::Stream& stream, Step& step,
                             const kernels::Tensor& all) const {
  std::array<const float*, limits::kSumSlices> next{};
  for (std::uint32_t part = 0; part < model_.vocab_ways; ++part) {
    const std::uint32_t rank = speaker_of(part, model_.rank, model_.vocab_ways);
    next[part] = reinterpret_cast<const float*>(
        part == own_part() ? step.own_at
                           : stream.reach(step.exchange.from[rank], step.rank_rooms[rank]));
  }
  const auto part_of_row = [&](std::int64_t r) {
    std::uint32_t part = 0;
    while (step.tokens[static_cast<std::size_t>(r)] >= first_token(part + 1)) ++part;
    return part;
  };
  for (std::int64_t r = 0; r < step.rows;) {
    const std::uint32_t part = part_of_row(r);
    std::int64_t rows = 1;  // that come one after the other
    while (r + rows < step.rows && part_of_row(r + rows) == part) ++rows;
    kernels::copy(
        stream, stream.device_tensor(const_cast<float*>(next[part]), DType::kF32, rows, step.width),
        all.part(r, rows));
    next[part] += rows * step.width;
    r += rows;
  }
}

void RankCuts::send_logits(kernels::Stream& stream, Step& step) const {
  if (leads())
    clear(step);  // its own part stays where it is
  else
    settle(stream, step);
  RankExchange& e = step.exchange;
  const std::uint32_t ways = model_.vocab_ways;
  const std::int64_t rows = step.logit_rows;
  if (!leads()) {
    if (speaks(model_.rank.rank, ways))
      e.to[0] = own_part(stream, step, 0, bytes_of(rows, own_tokens()));
    e.bytes[0] = kWord;
    return;
  }
  for (std::uint32_t rank = 1; rank < model_.rank.size; ++rank) e.to[rank] = word();
  for (std::uint32_t part = 1; part < ways; ++part)
    e.bytes[speaker_of(part, model_.rank, ways)] =
        bytes_of(rows, first_token(part + 1) - first_token(part));
}

void RankCuts::send_done(Step& step) const {
  clear(step);
  for (std::uint32_t rank = 1; rank < model_.rank.size; ++rank)
    if (leads()) step.exchange.bytes[rank] = kWord;
  if (!leads()) step.exchange.to[0] = word();
}

void RankCuts::take_logits(kernels::Stream& stream, Step& step, const kernels::Tensor& all) const {
  const std::uint32_t ways = model_.vocab_ways;
  for (std::uint32_t part = 0; part < ways; ++part) {
    const std::int64_t first = first_token(part), count = first_token(part + 1) - first;
    const std::uint32_t rank = speaker_of(part, model_.rank, ways);
    const std::byte* const from =
        part == 0 ? step.own_at : stream.reach(step.exchange.from[rank], step.rank_rooms[rank]);
    kernels::copy(
        stream,
        stream.device_tensor(const_cast<std::byte*>(from), DType::kF32, step.logit_rows, count),
        all.columns(first, count));
  }
}

}  // namespace troupe
