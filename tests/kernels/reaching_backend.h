#pragma once

#include "kernels/backend.h"

namespace troupe::kernels {

/// The back-end of a GPU that reaches the memory which tests compute on; null: there is none here.
/// A driver that lets it reach all of the host's memory needs no more; with another the heap is
/// pinned before the first test, and holds what they have.
const Backend* reaching_backend();

}  // namespace troupe::kernels
