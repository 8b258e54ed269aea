#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cuda/twin/machine.h"

namespace troupe::kernels::cuda_twin {

/// Finds out what CTAs of a launch do to each other in a part of global memory. Each of them sees
/// it as it was before the launch, and what it changes is put together at the end: a word that two
/// CTAs change is told, and a CTA that reads what another writes computes something else than if
/// they ran one after the other. A CTA that writes what is there already is not seen.
///
/// The last of those that come to a word (Cta::last_of) sees what they had changed by then.
class Watch {
 public:
  Watch(std::byte* memory, std::size_t bytes);

  void run(Machine& machine, const Program& program, Block block);
  /// The CTA that runs has come to a word, perhaps as the last, and has counted itself there.
  void came(const std::uint32_t* word, bool last);
  /// After all CTAs. Says what was found wrong; empty: nothing.
  std::string end();

 private:
  struct Change {
    std::size_t word;
    std::uint32_t value;
    const std::uint32_t* told;  ///< where its CTA came to after it; null: nowhere
  };
  struct Word {
    std::size_t word;
    std::uint32_t value;
  };

  void take_changes(const std::uint32_t* told);
  void show(const Change& change);

  std::uint32_t* words_;
  std::vector<std::uint32_t> before_;
  std::vector<std::int32_t> writer_;  ///< of a word: the number of a CTA; 0: none
  std::vector<Block> blocks_;
  std::vector<Change> changes_;
  std::vector<Word> hidden_;  ///< what lies beneath the changes that are shown
  std::string finding_;
};

}  // namespace troupe::kernels::cuda_twin
