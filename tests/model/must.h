#pragma once

#include <doctest/doctest.h>

#include <string>
#include <utility>

#include "runtime/result.h"

namespace troupe::testing {

template <class T>
T must(Result<T> result) {
  if (!result) FAIL(result.error().message);
  return std::move(*result);
}

}  // namespace troupe::testing
