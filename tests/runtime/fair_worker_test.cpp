#include "runtime/fair_worker.h"

#include <doctest/doctest.h>

#include <future>
#include <string>

namespace troupe {
namespace {

TEST_CASE("owners take turns, and each one's jobs keep their order") {
  std::string done;
  FairWorker worker;
  std::promise<void> all_there;
  worker.post(9, [&] { all_there.get_future().wait(); });
  for (const char job : {'a', 'b', 'c', 'd'}) worker.post(1, [&done, job] { done += job; });
  for (const char job : {'x', 'y'}) worker.post(2, [&done, job] { done += job; });
  worker.post(3, [&done] { done += '1'; });
  all_there.set_value();
  worker.join();
  CHECK(done == "ax1bycd");
}

TEST_CASE("a job may bring another") {
  int done = 0;
  FairWorker worker;
  std::promise<void> second;
  worker.post(1, [&] {
    ++done;
    worker.post(1, [&] {
      ++done;
      second.set_value();
    });
  });
  second.get_future().wait();
  worker.join();
  CHECK(done == 2);
}

}  // namespace
}  // namespace troupe
