#include "model/forward/rank_experts.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <utility>

#include "kernels/copy.h"
#include "kernels/join.h"
#include "model/forward/rank_exchange.h"
#include "model/spec/split_model.h"
#include "runtime/limits.h"

namespace troupe {
namespace {

constexpr std::size_t aligned(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

/// Where the parts of what one rank tells another begin.
struct Layout {
  Layout(std::size_t pairs, std::size_t sum_bytes, std::size_t output_bytes)
      : sum_at(aligned(kNumbersAt + pairs * sizeof(std::uint32_t))),
        outputs_at(aligned(sum_at + sum_bytes)),
        bytes(outputs_at + pairs * output_bytes) {}

  static constexpr std::size_t kNumbersAt = 64;  ///< before them, how many there are
  std::size_t sum_at, outputs_at, bytes;
};

std::uint32_t word_at(const std::byte* bytes) {
  std::uint32_t word = 0;
  std::memcpy(&word, bytes, sizeof word);
  return word;
}

std::size_t sum_bytes(const LayerSpec& layer, std::int64_t rows, std::int64_t width) {
  return layer.inner_ways > 1 ? static_cast<std::size_t>(rows * width) * sizeof(float) : 0;
}

Layout layout_of(const Step& step, const LayerSpec& layer, std::int64_t rows, std::size_t pairs) {
  return {pairs, sum_bytes(layer, rows, step.width), step.wire_row_bytes};
}

}  // namespace

void RankExperts::deal(Step& step, const ExpertSet& set, const ExpertRanks* known) const {
  const auto top_k = static_cast<std::size_t>(step.top_k);
  step.here.clear();
  step.missing.clear();
  step.late.clear();
  step.covered.assign(step.expert_ids.size(), 0);
  for (std::size_t pair = 0; pair < step.expert_ids.size(); ++pair) {
    const std::int32_t expert = step.expert_ids[pair];
    const auto row = static_cast<std::int64_t>(pair / top_k);
    const bool own = row >= step.own_first && row < step.own_first + step.own_rows;
    const bool has = set.has({step.layer, expert});
    const auto rank = known ? known->of(step.layer, expert) : std::nullopt;
    const bool others = rank && *rank != model_.rank.rank;
    if (has && !others && (own || rank))
      step.here.push_back(static_cast<std::uint32_t>(pair));
    else if (own && !others)
      step.missing.push_back(
          {static_cast<std::int32_t>(row), static_cast<std::int32_t>(pair % top_k), expert});
    // Answers to questions have their place, also for what another rank does not compute after all.
    const std::size_t own_pair = pair - static_cast<std::size_t>(step.own_first) * top_k;
    step.pair_outputs[pair] =
        own ? step.outputs_room.data() + own_pair * step.wire_row_bytes : nullptr;
  }
}

/// What goes to each rank lies one after the other; the same to all is there once.
void RankExperts::cut_sections(Step& step, const LayerSpec& layer) const {
  const bool some = ranks_.scatters(step.rows);
  const auto pairs_before = [&](std::int64_t row) {
    const auto pair = static_cast<std::uint32_t>(row * step.top_k);
    return static_cast<std::size_t>(std::lower_bound(step.here.begin(), step.here.end(), pair) -
                                    step.here.begin());
  };
  std::size_t at = 0;
  step.sections.clear();
  for (std::uint32_t to = 0; to < (some ? model_.rank.size : 1); ++to) {
    RankSection section;
    section.at = at;
    section.first_row = some ? ranks_.first_row(step.rows, to) : 0;
    section.rows = some ? ranks_.own_rows(step.rows, to) : step.rows;
    section.first_pair = pairs_before(section.first_row);
    section.pairs = pairs_before(section.first_row + section.rows) - section.first_pair;
    section.bytes = layout_of(step, layer, section.rows, section.pairs).bytes;
    step.sections.push_back(section);
    at += aligned(section.bytes);
  }
}

const RankSection& RankExperts::section_for(const Step& step, std::uint32_t to) const {
  return step.sections.size() == 1 ? step.sections[0] : step.sections[to];
}

kernels::Tensor RankExperts::outgoing(kernels::Stream& stream, Step& step, const LayerSpec& layer) {
  cut_sections(step, layer);
  const RankSection& last = step.sections.back();
  ranks_.room(stream, step, last.at + last.bytes);
  step.here_rows.clear();
  step.here_experts.clear();
  step.here_outputs.clear();
  for (const RankSection& section : step.sections) {
    const Layout layout = layout_of(step, layer, section.rows, section.pairs);
    std::byte* const at = step.own_at + section.at;
    const auto count = static_cast<std::uint32_t>(section.pairs);
    // What others read on the host.
    const auto write = [&](std::size_t where, const void* from, std::size_t bytes) {
      if (ranks_.stays_on_device())
        std::memcpy(step.exchange.own->here->data() + section.at + where, from, bytes);
      else
        stream.write(at + where, from, bytes);
    };
    write(0, &count, sizeof count);
    if (count > 0)
      write(Layout::kNumbersAt, step.here.data() + section.first_pair,
            section.pairs * sizeof(std::uint32_t));
    for (std::size_t i = 0; i < section.pairs; ++i) {
      const std::uint32_t pair = step.here[section.first_pair + i];
      step.here_rows.push_back(step.wire_row_there(static_cast<std::int64_t>(pair) / step.top_k));
      step.here_experts.push_back(step.expert_ids[pair]);
      step.here_outputs.push_back(at + layout.outputs_at + i * step.wire_row_bytes);
    }
  }
  if (step.sections.size() > 1 || layer.inner_ways == 1) return step.branch;
  const Layout layout = layout_of(step, layer, step.rows, step.here.size());
  return stream.device_tensor(step.own_at + layout.sum_at, DType::kF32, step.rows, step.width);
}

void RankExperts::send(kernels::Stream& stream, Step& step, const LayerSpec& layer) const {
  for (const RankSection& section : step.sections) {
    if (step.sections.size() == 1 || layer.inner_ways == 1) break;
    const Layout layout = layout_of(step, layer, section.rows, section.pairs);
    kernels::copy(stream, step.branch.part(section.first_row, section.rows),
                  stream.device_tensor(step.own_at + section.at + layout.sum_at, DType::kF32,
                                       section.rows, step.width));
  }
  ranks_.settle(stream, step);
  RankExchange& e = step.exchange;
  for (std::uint32_t rank = 0; rank < model_.rank.size; ++rank) {
    if (rank == model_.rank.rank) continue;
    const RankSection& section = section_for(step, rank);
    e.to[rank] = ranks_.own_part(stream, step, section.at, section.bytes);
    e.bytes[rank] = RankExchange::kAnyBytes;
  }
}

/// The section that a rank sent for this one, or its own.
std::span<const std::byte> RankExperts::section_from(const Step& step, std::uint32_t rank) const {
  if (rank != model_.rank.rank) return step.exchange.from[rank].bytes;
  const RankSection& own = section_for(step, rank);
  return step.exchange.own->here->span().subspan(own.at, own.bytes);
}

/// False if it is not what a rank can have sent.
bool RankExperts::take_section(Step& step, const LayerSpec& layer, const RankSection& own,
                               std::span<const std::byte> bytes, std::uint32_t rank) const {
  if (bytes.size() < Layout::kNumbersAt) return false;
  const std::size_t pairs = word_at(bytes.data());
  const auto first = static_cast<std::size_t>(own.first_row * step.top_k);
  const std::size_t end = first + static_cast<std::size_t>(own.rows * step.top_k);
  if (pairs > end - first) return false;
  const Layout layout = layout_of(step, layer, own.rows, pairs);
  if (bytes.size() != layout.bytes) return false;
  for (std::size_t i = 0; i < pairs; ++i) {
    const std::size_t pair = word_at(bytes.data() + Layout::kNumbersAt + i * sizeof(std::uint32_t));
    if (pair < first || pair >= end) return false;
    if (std::exchange(step.covered[pair], 1) == 0)
      step.pair_outputs[pair] =
          const_cast<std::byte*>(step.rank_at[rank] + layout.outputs_at + i * step.wire_row_bytes);
  }
  return true;
}

bool RankExperts::is_covered(const Step& step, const MissingExpert& of) {
  return step.covered[static_cast<std::size_t>(of.row * step.top_k + of.slot)] != 0;
}

RankExperts::Found RankExperts::take(kernels::Stream& stream, Step& step,
                                     const LayerSpec& layer) const {
  const RankSection& own = section_for(step, model_.rank.rank);
  step.rank_at.resize(model_.rank.size);
  for (std::uint32_t rank = 0; rank < model_.rank.size; ++rank) {
    const std::span<const std::byte> section = section_from(step, rank);
    step.rank_at[rank] = rank == model_.rank.rank
                             ? step.own_at + own.at
                             : stream.reach(step.exchange.from[rank], step.rank_rooms[rank]);
    if (!take_section(step, layer, own, section, rank)) return Found::kCorrupt;
  }
  list_late(step);
  std::erase_if(step.missing,
                [&](const MissingExpert& asked) { return is_covered(step, asked); });
  if (!step.missing.empty() || !step.late.empty()) return Found::kMissing;
  const bool all = step.sections.size() == 1 &&
                   std::find(step.covered.begin(), step.covered.end(), 0) == step.covered.end();
  return all ? Found::kAll : Found::kOwn;
}

/// Own pairs that no rank has computed, and that were not asked for.
void RankExperts::list_late(Step& step) const {
  auto asked = step.missing.begin();
  const std::int64_t end = (step.own_first + step.own_rows) * step.top_k;
  for (std::int64_t pair = step.own_first * step.top_k; pair < end; ++pair) {
    const MissingExpert lacks = {static_cast<std::int32_t>(pair / step.top_k),
                                 static_cast<std::int32_t>(pair % step.top_k),
                                 step.expert_ids[static_cast<std::size_t>(pair)]};
    if (asked != step.missing.end() && asked->row == lacks.row && asked->slot == lacks.slot)
      ++asked;
    else if (!is_covered(step, lacks))
      step.late.push_back(lacks);
  }
}

void RankExperts::join_shared(kernels::Stream& stream, Step& step, const LayerSpec& layer,
                              const kernels::Tensor& y) const {
  std::array<const float*, limits::kSumSlices> parts{};
  const bool some = step.sections.size() > 1;
  const std::int64_t skipped = some || y.rows == step.rows ? 0 : step.own_first * step.width;
  for (std::uint32_t part = 0; part < layer.inner_ways; ++part) {
    const bool own = part == part_of(model_.rank, layer.inner_ways);
    const std::uint32_t rank =
        own ? model_.rank.rank : speaker_of(part, model_.rank, layer.inner_ways);
    const std::span<const std::byte> section = section_from(step, rank);
    const std::size_t at =
        layout_of(step, layer, section_for(step, model_.rank.rank).rows, word_at(section.data()))
            .sum_at;
    parts[part] = reinterpret_cast<const float*>(step.rank_at[rank] + at) + skipped;
  }
  kernels::join(stream, std::span(parts).first(layer.inner_ways), nullptr, y);
}

}  // namespace troupe
