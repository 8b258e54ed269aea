#include "kernels/graph_queue.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/xxh3.h"

namespace troupe::kernels {
namespace {

constexpr std::size_t kArgumentsAlignment = 16;

/// Of kinds and functions, in order.
std::uint64_t key_of(std::span<const Work> works) {
  std::vector<std::uintptr_t> places;
  places.reserve(works.size());
  for (const Work& w : works)
    places.push_back(reinterpret_cast<std::uintptr_t>(w.function) + static_cast<unsigned>(w.kind));
  return xxh3_64(places.data(), places.size() * sizeof(std::uintptr_t));
}

bool same(const Work& a, const Work& b) {
  if (a.bytes != b.bytes) return false;
  if (a.kind != Work::Kind::kKernel) return a.from == b.from && a.to == b.to;
  return a.grid == b.grid && a.threads == b.threads && a.shared_bytes == b.shared_bytes &&
         a.meets == b.meets && std::memcmp(a.from, b.from, a.bytes) == 0;
}

}  // namespace

void GraphQueue::Batch::point() {
  const std::byte* next = arguments.data();
  for (Work& w : works) {
    if (w.kind != Work::Kind::kKernel) continue;
    w.from = next;
    next += (w.bytes + kArgumentsAlignment - 1) / kArgumentsAlignment * kArgumentsAlignment;
  }
}

void GraphQueue::add(const Work& work) {
  batch_.works.push_back(work);
  if (work.kind == Work::Kind::kKernel) {
    ++counts_.kernels;
    const auto* from = static_cast<const std::byte*>(work.from);
    batch_.arguments.insert(batch_.arguments.end(), from, from + work.bytes);
    while (batch_.arguments.size() % kArgumentsAlignment != 0)
      batch_.arguments.push_back(std::byte{0});
  }
}

void GraphQueue::flush(Device& device, bool singly) {
  ++flushes_;
  if (batch_.works.empty()) return;
  batch_.point();
  // What a device throws at is not tried again.
  struct Empty {
    Batch& batch;
    ~Empty() {
      batch.works.clear();
      batch.arguments.clear();
    }
  } const empty{batch_};
  if (batch_.works.size() >= kGraphMin && !singly) return put_into(known(), device);
  for (const Work& w : batch_.works) {
    device.run(w);
    ++counts_.launches;
  }
}

/// The one whose order this is; a new one has no work.
GraphQueue::Known& GraphQueue::known() {
  Known& found = known_[key_of(batch_.works)];
  if (!std::ranges::equal(found.last.works, batch_.works, same_place)) found = {};
  found.used = flushes_;
  if (known_.size() > kKnownMax)
    known_.erase(
        std::ranges::min_element(known_, {}, [](const auto& entry) { return entry.second.used; }));
  return found;
}

void GraphQueue::put_into(Known& known, Device& device) {
  const bool is_new = known.last.works.empty();
  if (is_new) {
    for (const Work& w : batch_.works) device.run(w);
    counts_.launches += batch_.works.size();
  } else {
    if (!known.graph) {
      known.graph = device.capture(batch_.works);
      ++counts_.captures;
    } else {
      for (std::size_t i = 0; i < batch_.works.size(); ++i) {
        if (same(known.last.works[i], batch_.works[i])) continue;
        known.graph->change(i, batch_.works[i]);
        ++counts_.changes;
      }
    }
    known.graph->launch();
    ++counts_.launches;
    ++counts_.graphs;
  }
  std::swap(known.last, batch_);
}

}  // namespace troupe::kernels
