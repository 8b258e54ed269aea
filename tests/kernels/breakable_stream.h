#pragma once

#include <string_view>

#include "families.h"
#include "kernels/doubles/spoilt_backend.h"

namespace troupe::kernels {

/// A stream with threads of its own, and an op whose answers it spoils.
struct BreakableStream {
  explicit BreakableStream(const Family& f, int threads = 1)
      : backend(f.backend != nullptr ? *f.backend : cpu_backend(),
                [this](std::string_view op) { return op == fault; }),
        pool(threads),
        stream({f.numerics, f.cpu, &pool, &backend, f.order_seed}) {}
  operator Stream&() { return stream; }

  std::string_view fault;  ///< none: no op's
  const SpoiltBackend backend;
  ThreadPool pool;
  Stream stream;
};

}  // namespace troupe::kernels
