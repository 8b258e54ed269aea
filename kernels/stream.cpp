#include "kernels/stream.h"

#include <cstring>
#include <new>

#include "kernels/backend.h"

namespace troupe::kernels {
namespace {

Stream::Options with_backend(Stream::Options options) {
  if (options.backend == nullptr) options.backend = &cpu_backend();
  return options;
}

/// What was given back while work was queued is there again once that has run.
std::shared_ptr<std::byte> memory_of(Accelerator& device, std::size_t bytes) {
  try {
    return device.memory(bytes);
  } catch (const std::bad_alloc&) {
    device.wait();
  }
  return device.memory(bytes);
}

Scratch::Memory memory_of(const Stream::Options& options) {
  if (options.accelerator == nullptr) return options.backend->memory;
  return [device = options.accelerator](std::size_t bytes) { return memory_of(*device, bytes); };
}

std::function<void()> settling(Accelerator* device) {
  if (device == nullptr) return {};
  return [device] { device->wait(); };
}

}  // namespace

Stream::Stream(const Options& options)
    : options_(with_backend(options)),
      scratch_(memory_of(options_), settling(accelerator())),
      device_(backend().open == nullptr || accelerator() != nullptr ? nullptr
                                                                    : backend().open(options_)) {}

std::shared_ptr<std::byte> Stream::memory(std::size_t bytes) const {
  return accelerator() != nullptr ? memory_of(*accelerator(), bytes) : backend().memory(bytes);
}

std::shared_ptr<const std::byte> Stream::place(std::span<const std::byte> bytes) const {
  if (accelerator() == nullptr) return {std::shared_ptr<const void>(), bytes.data()};
  auto there = accelerator()->memory(bytes.size());
  accelerator()->upload(there.get(), bytes);
  return there;
}

void Stream::read(void* to, const void* from, std::size_t bytes) {
  if (accelerator() != nullptr) return accelerator()->read(to, from, bytes);
  std::memcpy(to, from, bytes);
}

void Stream::write(void* to, const void* from, std::size_t bytes) {
  if (accelerator() != nullptr) return accelerator()->write(to, from, bytes);
  std::memcpy(to, from, bytes);
}

std::shared_ptr<Buffer> Stream::host_buffer(std::size_t bytes) const {
  if (accelerator() == nullptr) return std::make_shared<Buffer>(Buffer::uninitialized(bytes));
  return std::make_shared<Buffer>(Buffer::pinned(accelerator()->host_memory(bytes), bytes));
}

void Stream::write(void* to, const Payload& from) {
  if (from.memory == MemoryKind::kDevice) {
    if (accelerator() != nullptr) return accelerator()->copy(to, from);
    const std::span here(static_cast<std::byte*>(to), from.bytes.size());
    return from.device->download(here, from.there);
  }
  if (accelerator() != nullptr && from.memory == MemoryKind::kPinned)
    return accelerator()->write(to, from);
  write(to, from.bytes.data(), from.bytes.size());
}

const std::byte* Stream::reach(const Payload& from, Room& room) {
  if (accelerator() == nullptr && from.memory != MemoryKind::kDevice) return from.bytes.data();
  std::byte* const there = room.at_least(*this, from.bytes.size());
  write(there, from);
  return there;
}

std::byte* Stream::target(Buffer& buffer, Room& room) {
  return accelerator() == nullptr ? buffer.data() : room.at_least(*this, buffer.size());
}

void Stream::fetch(const std::shared_ptr<Buffer>& to, const void* from, std::size_t bytes) {
  if (accelerator() != nullptr) return accelerator()->fetch(to, from, bytes);
  if (bytes > 0 && from != to->data()) std::memcpy(to->data(), from, bytes);
}

}  // namespace troupe::kernels
