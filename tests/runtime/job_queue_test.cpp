#include "runtime/job_queue.h"

#include <doctest/doctest.h>

#include <future>
#include <memory>
#include <vector>

using namespace troupe;

TEST_CASE("jobs are done in their order") {
  std::vector<int> done;
  std::promise<void> all;
  JobQueue queue(100);
  for (int i = 0; i < 100; ++i) REQUIRE(queue.add([&done, i] { done.push_back(i); }).ok());
  while (!queue.add([&all] { all.set_value(); }).ok()) std::this_thread::yield();
  all.get_future().wait();
  REQUIRE(done.size() == 100);
  for (int i = 0; i < 100; ++i) CHECK(done[static_cast<std::size_t>(i)] == i);
}

TEST_CASE("a full queue refuses; at its end what has not begun is dropped") {
  std::promise<void> begun, go_on;
  auto may_go_on = go_on.get_future().share();
  int done = 0;
  JobQueue queue(2);
  REQUIRE(queue.add([&] {
                 begun.set_value();
                 may_go_on.wait();
                 ++done;
               }).ok());
  begun.get_future().wait();
  const auto held = std::make_shared<int>(0);
  for (int i = 0; i < 2; ++i) REQUIRE(queue.add([&done, held] { ++done; }).ok());
  CHECK(queue.add([] {}).error().code == ErrorCode::kResourceExhausted);
  std::thread ends([&] { queue.end(); });
  while (held.use_count() > 1) std::this_thread::yield();  // they are dropped while the first runs
  CHECK(queue.add([] {}).error().code == ErrorCode::kCancelled);
  go_on.set_value();
  ends.join();
  CHECK(done == 1);
}
