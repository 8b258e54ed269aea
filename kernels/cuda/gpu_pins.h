#pragma once

#include <cstddef>

namespace troupe::kernels {

/// Pins memory of the host for as long as the process runs, so that the first GPU reaches it at its
/// own address, whatever the driver lets it reach beside that. False: it may not.
bool pin_for_gpu(std::byte* from, std::size_t bytes);

}  // namespace troupe::kernels
