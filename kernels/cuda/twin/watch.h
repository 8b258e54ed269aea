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
class Watch {
 public:
  Watch(std::byte* memory, std::size_t bytes);

  void run(Machine& machine, const Program& program, Block block);
  /// After all CTAs. Says what was found wrong; empty: nothing.
  std::string end();

 private:
  struct Change {
    std::size_t word;
    std::uint32_t value;
  };

  std::uint32_t* words_;
  std::vector<std::uint32_t> before_;
  std::vector<std::int32_t> writer_;  ///< of a word: the number of a CTA; 0: none
  std::vector<Block> blocks_;
  std::vector<Change> changes_;
  std::string finding_;
};

}  // namespace troupe::kernels::cuda_twin
