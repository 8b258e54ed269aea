#include "transport/nccl/device.h"

#include <cstring>
#include <utility>

#include "runtime/limits.h"
#include "runtime/shared_object.h"

namespace troupe::nccl {
namespace {

constexpr const char* kDriverAdvice = "install NVIDIA's driver, or choose another --fabric";

}  // namespace

// --- The driver ---------------------------------------------------------------------------------

Result<std::shared_ptr<const Driver>> Driver::load(const std::string& path) {
  auto object = SharedObject::open(path, kDriverAdvice);
  if (!object.ok()) return object.error();
  auto driver = std::make_shared<Driver>();
  object->find("cuInit", driver->init_);
  object->find("cuGetErrorString", driver->error_string_);
  object->find("cuDeviceGet", driver->device_get);
  object->find("cuDevicePrimaryCtxRetain", driver->retain);
  object->find("cuDevicePrimaryCtxRelease_v2", driver->release);
  object->find("cuCtxPushCurrent_v2", driver->push);
  object->find("cuCtxPopCurrent_v2", driver->pop);
  object->find("cuStreamCreate", driver->stream_create);
  object->find("cuStreamQuery", driver->stream_query);
  object->find("cuStreamDestroy_v2", driver->stream_destroy);
  object->find("cuMemHostAlloc", driver->host_alloc);
  object->find("cuMemFreeHost", driver->host_free);
  if (const Status there = object->missing(kDriverAdvice); !there.ok()) return there.error();
  if (const Status begun = driver->check(driver->init_(0), "its start"); !begun.ok())
    return begun.error();
  return std::shared_ptr<const Driver>(std::move(driver));
}

Status Driver::check(int code, const std::string& what) const {
  if (code == kCudaSuccess || code == kCudaNotReady) return {};
  const char* words = nullptr;
  (void)error_string_(code, &words);
  return unavailable("The GPU's driver failed at " + what + ": " +
                     (words ? words : "error " + std::to_string(code)) + ".");
}

// --- A device -----------------------------------------------------------------------------------

Result<std::shared_ptr<Device>> Device::open(std::shared_ptr<const Driver> driver, int ordinal) {
  int device = 0;
  Context context = nullptr;
  const std::string name = "GPU " + std::to_string(ordinal);
  if (const Status found = driver->check(driver->device_get(&device, ordinal), name); !found.ok())
    return found.error();
  if (const Status got = driver->check(driver->retain(&context, device), "the context of " + name);
      !got.ok())
    return got.error();
  return std::shared_ptr<Device>(new Device(std::move(driver), device, context));
}

Device::~Device() {
  rooms_->clear();
  (void)driver_->release(device_);
}

Device::Current::Current(const Device& device)
    : driver_(*device.driver_), pushed_(driver_.push(device.context_) == kCudaSuccess) {}

Device::Current::~Current() {
  Context context = nullptr;
  if (pushed_) (void)driver_.pop(&context);
}

Result<Stream> Device::open_stream() const {
  const Current current(*this);
  Stream stream = nullptr;
  const Status made =
      driver_->check(driver_->stream_create(&stream, kCudaStreamNonBlocking), "a stream");
  if (!made.ok()) return made.error();
  return stream;
}

void Device::close_stream(Stream stream) const {
  const Current current(*this);
  (void)driver_->stream_destroy(stream);
}

Result<bool> Device::idle(Stream stream) const {
  const int code = driver_->stream_query(stream);
  if (const Status good = driver_->check(code, "an exchange"); !good.ok()) return good.error();
  return code == kCudaSuccess;
}

Result<Part> Device::readable(const Payload& payload) {
  const std::byte* const at =
      payload.memory == MemoryKind::kDevice ? payload.there : payload.bytes.data();
  if (payload.memory != MemoryKind::kHost)
    return Part{const_cast<std::byte*>(at), payload.bytes.size(), payload.owner};
  auto part = room(payload.bytes.size());
  if (part.ok()) std::memcpy(part->data, payload.bytes.data(), part->bytes);
  return part;
}

Result<Part> Device::room(std::size_t bytes) {
  Status pinned;
  auto block = rooms_->take(bytes, [&](std::size_t size) -> std::shared_ptr<std::byte> {
    const Current current(*this);
    void* data = nullptr;
    pinned = driver_->check(driver_->host_alloc(&data, size, kCudaHostPortable),
                            std::to_string(size) + " bytes of pinned memory");
    if (!pinned.ok()) return nullptr;
    return {static_cast<std::byte*>(data), [this](std::byte* p) {
              const Current freeing(*this);
              (void)driver_->host_free(p);
            }};
  });
  if (!block) return pinned.error();
  std::byte* const data = block.get();
  // The block first: it needs the device.
  auto owner = std::make_shared<std::pair<std::shared_ptr<Device>, std::shared_ptr<std::byte>>>(
      shared_from_this(), std::move(block));
  return Part{data, bytes, std::move(owner)};
}

}  // namespace troupe::nccl
