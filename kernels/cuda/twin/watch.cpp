#include "kernels/cuda/twin/watch.h"

namespace troupe::kernels::cuda_twin {
namespace {

// Memory that is not taken is watched as well, but the address sanitizer must not know.
[[gnu::no_sanitize("address")]] std::uint32_t load(const std::uint32_t* word) { return *word; }
[[gnu::no_sanitize("address")]] void store(std::uint32_t* word, std::uint32_t value) {
  *word = value;
}

/// The first word from `at` on that differs; `count` if none does.
[[gnu::no_sanitize("address")]] std::size_t first_change(const std::uint32_t* words,
                                                         const std::uint32_t* before,
                                                         std::size_t at, std::size_t count) {
  while (at < count && words[at] == before[at]) ++at;
  return at;
}

std::string named(Block block) {
  return "(" + std::to_string(block.x) + ", " + std::to_string(block.y) + ")";
}

}  // namespace

Watch::Watch(std::byte* memory, std::size_t bytes)
    : words_(reinterpret_cast<std::uint32_t*>(memory)), before_(bytes / 4), writer_(bytes / 4) {
  for (std::size_t i = 0; i < before_.size(); ++i) before_[i] = load(words_ + i);
}

void Watch::run(Machine& machine, const Program& program, Block block) {
  machine.run(program, block);
  blocks_.push_back(block);
  const auto self = static_cast<std::int32_t>(blocks_.size());
  const std::size_t count = before_.size();
  for (std::size_t i = 0; (i = first_change(words_, before_.data(), i, count)) < count; ++i) {
    if (writer_[i] != 0 && finding_.empty())
      finding_ = "CTAs " + named(blocks_[static_cast<std::size_t>(writer_[i] - 1)]) + " and " +
                 named(block) + " write the same four bytes";
    writer_[i] = self;
    changes_.push_back({i, load(words_ + i)});
    store(words_ + i, before_[i]);
  }
}

std::string Watch::end() {
  for (const Change& change : changes_) store(words_ + change.word, change.value);
  return finding_;
}

}  // namespace troupe::kernels::cuda_twin
