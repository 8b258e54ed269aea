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
  blocks_.push_back(block);
  machine.watched_by(this);
  machine.run(program, block);
  machine.watched_by(nullptr);
  take_changes(nullptr);
  for (; !hidden_.empty(); hidden_.pop_back()) {
    const Word& word = hidden_.back();
    before_[word.word] = word.value;
    store(words_ + word.word, word.value);
  }
}

void Watch::came(const std::uint32_t* word, bool last) {
  // How many have come is no secret, and no change of one of them.
  const auto at = static_cast<std::size_t>(word - words_);
  if (at < before_.size()) before_[at] = load(word);
  const std::size_t own = changes_.size();
  take_changes(word);
  for (std::size_t i = last ? 0 : own; i < changes_.size(); ++i)
    if (changes_[i].told == word) show(changes_[i]);
}

/// What the CTA that runs has changed, which is then as before.
void Watch::take_changes(const std::uint32_t* told) {
  const auto self = static_cast<std::int32_t>(blocks_.size());
  const std::size_t count = before_.size();
  for (std::size_t i = 0; (i = first_change(words_, before_.data(), i, count)) < count; ++i) {
    if (writer_[i] != 0 && writer_[i] != self && finding_.empty())
      finding_ = "CTAs " + named(blocks_[static_cast<std::size_t>(writer_[i] - 1)]) + " and " +
                 named(blocks_.back()) + " write the same four bytes";
    writer_[i] = self;
    changes_.push_back({i, load(words_ + i), told});
    store(words_ + i, before_[i]);
  }
}

void Watch::show(const Change& change) {
  hidden_.push_back({change.word, before_[change.word]});
  before_[change.word] = change.value;
  store(words_ + change.word, change.value);
}

std::string Watch::end() {
  for (const Change& change : changes_) store(words_ + change.word, change.value);
  return finding_;
}

}  // namespace troupe::kernels::cuda_twin
