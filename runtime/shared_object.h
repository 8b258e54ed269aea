#pragma once

#include <string>

#include "runtime/result.h"

namespace troupe {

/// A shared library and what is used of it. It stays loaded for good: threads of its own may
/// outlive whoever used it.
class SharedObject {
 public:
  /// kUnavailable: it cannot be loaded, `advice` says what to do.
  static Result<SharedObject> open(const std::string& path, const std::string& advice);
  /// Finds a function. False: it is not there; missing() says which was the first.
  template <class Function>
  bool find(const char* name, Function& function) {
    return find(name, reinterpret_cast<void**>(&function));
  }
  /// kUnavailable if one was not found.
  Status missing(const std::string& advice) const;

 private:
  bool find(const char* name, void** function);
  std::string path_, missing_;
  void* handle_ = nullptr;
};

}  // namespace troupe
