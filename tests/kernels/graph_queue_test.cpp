#include "kernels/graph_queue.h"

#include <doctest/doctest.h>

#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace troupe::kernels {
namespace {

/// Notes what it does: kernels as "k1(argument)", copies as "in(bytes)", graphs as "[...]".
class NotingDevice final : public GraphQueue::Device {
 public:
  void run(const Work& work) override {
    if (calls_left-- == 0) throw std::runtime_error("it is gone");
    done += name(work) + " ";
  }
  std::unique_ptr<GraphQueue::Graph> capture(std::span<const Work> batch) override {
    return std::make_unique<NotingGraph>(*this, batch);
  }
  std::string take() { return std::exchange(done, {}); }

  std::string done;
  int calls_left = 1 << 30;

 private:
  static std::string name(const Work& w) {
    if (w.kind == Work::Kind::kCopyIn) return "in(" + std::to_string(w.bytes) + ")";
    if (w.kind == Work::Kind::kCopyOut) return "out(" + std::to_string(w.bytes) + ")";
    int argument = 0;
    std::memcpy(&argument, w.from, sizeof argument);
    return "k" + std::to_string(reinterpret_cast<std::uintptr_t>(w.function)) + "(" +
           std::to_string(argument) + ")";
  }

  class NotingGraph final : public GraphQueue::Graph {
   public:
    NotingGraph(NotingDevice& device, std::span<const Work> batch) : device_(device) {
      for (const Work& w : batch) nodes_.push_back(name(w));
    }
    void change(std::size_t at, const Work& work) override { nodes_.at(at) = name(work); }
    void launch() override {
      device_.done += "[ ";
      for (const std::string& n : nodes_) device_.done += n + " ";
      device_.done += "] ";
    }

   private:
    NotingDevice& device_;
    std::vector<std::string> nodes_;
  };
};

Work kernel(std::uintptr_t function, const int& argument) {
  Work w;
  w.function = reinterpret_cast<const void*>(function);
  w.from = &argument;
  w.bytes = sizeof argument;
  return w;
}

Work copy_in(std::size_t bytes) {
  static char place;
  return {.kind = Work::Kind::kCopyIn, .from = &place, .to = &place, .bytes = bytes};
}

struct Batches {
  NotingDevice device;
  GraphQueue queue;

  /// Kernels 1, 2, … with these arguments, behind a copy.
  std::string batch(const std::vector<int>& arguments, std::size_t copied = 8) {
    queue.add(copy_in(copied));
    std::uintptr_t function = 0;
    for (const int a : arguments) {
      int gone = a;
      queue.add(kernel(++function, gone));
      gone = -1;
    }
    CHECK(device.take().empty());
    queue.flush(device);
    return device.take();
  }
};

}  // namespace

TEST_CASE("work that comes again goes as a graph, with what is new in it") {
  Batches b;
  CHECK(b.batch({5, 6, 7}) == "in(8) k1(5) k2(6) k3(7) ");
  CHECK(b.queue.counts().launches == 4);
  CHECK(b.batch({5, 6, 7}) == "[ in(8) k1(5) k2(6) k3(7) ] ");
  CHECK(b.batch({5, 9, 7}) == "[ in(8) k1(5) k2(9) k3(7) ] ");
  CHECK(b.batch({5, 9, 7}, 16) == "[ in(16) k1(5) k2(9) k3(7) ] ");
  CHECK(b.batch({5, 9, 7}, 16) == "[ in(16) k1(5) k2(9) k3(7) ] ");
  CHECK(b.queue.counts().kernels == 15);
  CHECK(b.queue.counts().launches == 8);
  CHECK(b.queue.counts().captures == 1);
  CHECK(b.queue.counts().changes == 2);
}

TEST_CASE("a kernel in a graph is changed by whatever makes it another launch") {
  Batches b;
  const auto batch = [&](void (*change)(Work&)) {
    const int argument = 1;
    for (std::uintptr_t function = 1; function <= 4; ++function) {
      Work w = kernel(function, argument);
      if (function == 2 && change != nullptr) change(w);
      b.queue.add(w);
    }
    b.queue.flush(b.device);
    return b.queue.counts().changes;
  };
  batch(nullptr);
  CHECK(batch(nullptr) == 0);
  std::uint64_t changes = 0;
  for (void (*change)(Work&) :
       {+[](Work& w) { w.grid.x = 2; }, +[](Work& w) { w.grid.y = 2; },
        +[](Work& w) { w.threads = 64; }, +[](Work& w) { w.shared_bytes = 1 << 16; },
        +[](Work& w) { w.meets = true; }}) {
    CHECK(batch(change) == ++changes);
    CHECK(batch(change) == changes);
    CHECK(batch(nullptr) == ++changes);
  }
}

TEST_CASE("each order of work has a graph of its own") {
  Batches b;
  for (int i = 0; i < 2; ++i) {
    b.batch({1, 2, 3});
    b.batch({1, 2, 3, 4});
  }
  CHECK(b.queue.counts().captures == 2);
  CHECK(b.batch({1, 2, 9}) == "[ in(8) k1(1) k2(2) k3(9) ] ");
  CHECK(b.batch({8, 2, 3, 4}) == "[ in(8) k1(8) k2(2) k3(3) k4(4) ] ");
  CHECK(b.queue.counts().changes == 2);
}

TEST_CASE("little work goes by itself, however often it comes") {
  Batches b;
  for (int i = 0; i < 3; ++i) CHECK(b.batch({1, 2}) == "in(8) k1(1) k2(2) ");
  CHECK(b.batch({}) == "in(8) ");
  b.queue.flush(b.device);
  CHECK(b.device.take().empty());
}

TEST_CASE("a batch is full at some size") {
  Batches b;
  const int argument = 1;
  for (std::size_t i = 0; i + 1 < GraphQueue::kBatchMax; ++i) b.queue.add(kernel(1, argument));
  CHECK(!b.queue.full());
  b.queue.add(kernel(1, argument));
  CHECK(b.queue.full());
  b.queue.flush(b.device);
  CHECK(!b.queue.full());
  CHECK(b.queue.counts().launches == GraphQueue::kBatchMax);
}

TEST_CASE("what is to come first is the first of its batch") {
  Batches b;
  const int argument = 4;
  b.queue.add(kernel(1, argument));
  b.queue.add_first(copy_in(3));
  b.queue.flush(b.device);
  CHECK(b.device.take() == "in(3) k1(4) ");
}

TEST_CASE("of many orders the ones used last are known") {
  Batches b;
  std::vector<int> arguments(GraphQueue::kGraphMin);
  for (std::size_t i = 0; i <= GraphQueue::kKnownMax; ++i, arguments.push_back(0))
    for (int times = 0; times < 2; ++times) {
      b.batch(arguments);
      b.batch({1, 2, 3});
    }
  CHECK(b.queue.counts().captures == GraphQueue::kKnownMax + 2);
  CHECK(b.batch({1, 2, 3}).starts_with("["));
  CHECK(b.batch(std::vector<int>(GraphQueue::kGraphMin)).starts_with("in"));
}

TEST_CASE("work that a device threw at does not come again") {
  Batches b;
  b.device.calls_left = 2;
  CHECK_THROWS_AS(b.batch({5, 6, 7}), std::runtime_error);
  CHECK(b.device.take() == "in(8) k1(5) ");
  b.device.calls_left = 1 << 30;
  b.queue.flush(b.device);
  CHECK(b.device.take().empty());
}

}  // namespace troupe::kernels
