#pragma once

#include "kernels/scratch.h"
#include "runtime/numerics.h"
#include "runtime/thread_pool.h"

namespace troupe::kernels {

/// What every op needs beside its operands. Used by one compute thread.
struct Context {
  Numerics numerics = Numerics::kReference;
  ThreadPool* pool = nullptr;  ///< null: everything runs on the calling thread
  Scratch* scratch = nullptr;  ///< never null when an op is called
  const Fault* fault = nullptr;
};

}  // namespace troupe::kernels
