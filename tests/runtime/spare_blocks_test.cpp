#include "runtime/spare_blocks.h"

#include <doctest/doctest.h>

#include <memory>
#include <vector>

namespace {

using troupe::SpareBlocks;

/// Blocks of the heap, counted.
struct Maker {
  int made = 0, there = 0;

  SpareBlocks::Make make() {
    return [this](std::size_t bytes) {
      ++made, ++there;
      return std::shared_ptr<std::byte>(new std::byte[bytes], [this](std::byte* p) {
        --there;
        delete[] p;
      });
    };
  }
};

TEST_CASE("a block that nobody holds is used again for about as much") {
  Maker maker;
  const auto blocks = SpareBlocks::make(1u << 20);
  auto first = blocks->take(100'000, maker.make());
  const std::byte* const at = first.get();
  const auto beside = blocks->take(100'000, maker.make());
  CHECK(beside.get() != at);
  first.reset();
  CHECK(blocks->take(99'000, maker.make()).get() == at);
  CHECK(blocks->take(100'001, maker.make()).get() == at);
  CHECK(maker.made == 2);
  CHECK(blocks->take(200'000, maker.make()).get() != at);
  CHECK(blocks->take(0, maker.make()) != nullptr);
}

TEST_CASE("all of a block may be written") {
  Maker maker;
  const auto blocks = SpareBlocks::make(1u << 20);
  for (std::size_t bytes = 1; bytes < 70'000; bytes = bytes * 5 / 4 + 1) {
    const auto block = blocks->take(bytes, maker.make());
    std::fill_n(block.get(), bytes, std::byte{7});  // the address sanitizer looks
  }
}

TEST_CASE("what is asked for again has room beside what is not, and held ones outlive the others") {
  Maker maker;
  auto blocks = SpareBlocks::make(1u << 20);
  std::vector<std::shared_ptr<std::byte>> held;
  for (int i = 0; i < 4; ++i) held.push_back(blocks->take(512u << 10, maker.make()));
  held.resize(1);
  CHECK(maker.there == 4);  // nothing goes where it is let go
  for (int i = 0; i < 3; ++i) blocks->take(64u << 10, maker.make());
  CHECK(maker.made == 5);
  CHECK(maker.there == 4);  // two of the large ones are kept, and the small one
  blocks->take(128u << 10, maker.make());
  CHECK(maker.there == 4);  // one, and the small ones
  blocks->take(64u << 10, maker.make());
  CHECK(maker.made == 6);
  blocks->clear();
  CHECK(maker.there == 1);
  std::weak_ptr<SpareBlocks> gone = blocks;
  blocks.reset();
  held.front().get()[0] = std::byte{1};
  held.clear();
  CHECK(maker.there == 0);
  CHECK(gone.expired());
}

TEST_CASE("what cannot be had is nothing, or what was thrown") {
  const auto blocks = SpareBlocks::make(1u << 20);
  CHECK(blocks->take(1, [](std::size_t) { return std::shared_ptr<std::byte>(); }) == nullptr);
  CHECK_THROWS_AS(
      blocks->take(1, [](std::size_t) -> std::shared_ptr<std::byte> { throw std::bad_alloc(); }),
      std::bad_alloc);
}

}  // namespace
