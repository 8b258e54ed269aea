#pragma once

#include <doctest/doctest.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "actors/api/cluster.h"
#include "tests/patience.h"
#include "tests/source_path.h"

namespace troupe::testing {

inline const std::string kDemo = source_path("tools/demo/pocket-dictionary");

inline std::unique_ptr<Cluster> start_demo() {
  LocalClusterOptions options;
  options.engine.model = kDemo;
  options.threads = 1;
  auto cluster = Cluster::start(options);
  if (!cluster.ok()) MESSAGE(cluster.error().message);
  REQUIRE(cluster.ok());
  return std::move(*cluster);
}

inline GenerationRequest question(const std::string& text) {
  GenerationRequest request;
  request.prompt = std::vector<ChatMessage>{{"user", text}};
  request.temperature = 0.0f;
  return request;
}

/// One that takes thousands of steps unless somebody ends it.
inline GenerationRequest endless() {
  GenerationRequest request = question("What is brandy?");
  request.ignore_eos = true;
  return request;
}

/// Collects a stream's events, to be waited for.
struct Events {
  std::mutex mutex;
  std::condition_variable changed;
  std::size_t events = 0;      // guarded by mutex
  std::size_t ends = 0;        // guarded by mutex
  std::optional<Error> error;  // guarded by mutex

  Cluster::OnEvent sink() {
    return [this](const GenerationEvent& event) {
      std::lock_guard lock(mutex);
      ++events;
      if (event.error) error = event.error;
      ends += event.error || event.request_done;
      changed.notify_all();
    };
  }
  template <class Condition>
  bool wait(Condition condition) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, kTestPatience, condition);
  }
};

}  // namespace troupe::testing
