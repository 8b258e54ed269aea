/// A double of libnccl.so.2, and of what is used of libcuda.so.1: the same functions with the same
/// meaning, on host memory, over Unix sockets in the abstract namespace. Streams are opaque to its
/// NCCL half, but for the count of groups under way.
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/transport/nccl/mischief.h"
#include "transport/nccl/abi.h"

using namespace troupe::nccl;

namespace troupe::nccl {

struct CudaStream {
  std::atomic<int> under_way{0};
};

}  // namespace troupe::nccl

namespace {

using namespace std::chrono_literals;

// --- Sockets ------------------------------------------------------------------------------------

socklen_t address_of(const UniqueId& id, int rank, sockaddr_un& address) {
  address = {};
  address.sun_family = AF_UNIX;
  const std::string name = id.bytes + ("-" + std::to_string(rank));
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

/// What goes before the bytes of a part.
struct Head {
  std::uint64_t bytes = 0;
};

struct Operation {
  bool sends = false;
  std::byte* data = nullptr;
  std::size_t count = 0;
  int peer = 0;
};

/// One direction of one connection within a group.
struct Way {
  Operation operation;
  Head head;
  std::size_t done = 0;    ///< of head and data
  std::size_t length = 0;  ///< of the data
  bool over() const { return done == sizeof head + length; }
};

}  // namespace

namespace troupe::nccl {

struct NcclComm {
  NcclComm(int ranks, int rank, const UniqueId& id)
      : ranks_(ranks), rank_(rank), id_(id), peers_(static_cast<std::size_t>(ranks), -1) {
    thread_ = std::thread([this] { work(); });
  }
  ~NcclComm() {
    aborted_ = true;
    {
      std::lock_guard lock(mutex_);
      changed_.notify_all();
    }
    thread_.join();
    for (const int peer : peers_)
      if (peer >= 0) close(peer);
    for (const auto& [stream, operations] : queue_) --stream->under_way;
  }

  int rank() const { return rank_; }
  Code state() const { return state_; }

  void put(Stream stream, std::vector<Operation> operations) {
    std::lock_guard lock(mutex_);
    if (state_ == kSuccess) state_ = kInProgress;
    ++stream->under_way;
    queue_.emplace_back(stream, std::move(operations));
    changed_.notify_all();
  }

 private:
  void work() {
    if (!meet()) return;
    state_ = kSuccess;
    for (;;) {
      std::pair<Stream, std::vector<Operation>> next;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return aborted_ || !queue_.empty(); });
        if (aborted_) return;
        next = std::move(queue_.front());
        queue_.pop_front();
      }
      if (state_ == kInProgress) state_ = kSuccess;
      if (!carry_out(next.second) && !aborted_) {
        state_ = kRemoteError;
        pause([] { return false; });
      }
      --next.first->under_way;
    }
  }

  /// Until that is so; false once it is aborted.
  template <class Ready>
  bool pause(const Ready& ready) {
    while (!aborted_) {
      if (ready()) return true;
      std::this_thread::sleep_for(200us);
    }
    return false;
  }

  /// Ranks go to lower ones, and say who they are.
  bool meet() {
    const int door = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    sockaddr_un address;
    socklen_t length = address_of(id_, rank_, address);
    bool good =
        bind(door, reinterpret_cast<sockaddr*>(&address), length) == 0 && listen(door, ranks_) == 0;
    for (int peer = 0; peer < rank_ && good; ++peer) good = go_to(peer);
    for (int peer = rank_ + 1; peer < ranks_ && good; ++peer) {
      int came = -1;
      std::uint8_t who = 0;
      good = pause([&] { return (came = accept4(door, nullptr, nullptr, SOCK_CLOEXEC)) >= 0; }) &&
             recv(came, &who, 1, MSG_WAITALL) == 1;
      if (good) peers_[who] = came;
    }
    close(door);
    for (const int peer : peers_)
      if (peer >= 0) fcntl(peer, F_SETFL, O_NONBLOCK);
    return good;
  }

  bool go_to(int peer) {
    const int connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un address;
    const socklen_t length = address_of(id_, peer, address);
    const auto who = static_cast<std::uint8_t>(rank_);
    peers_[static_cast<std::size_t>(peer)] = connection;
    return pause([&] {
             return connect(connection, reinterpret_cast<sockaddr*>(&address), length) == 0;
           }) &&
           ::send(connection, &who, 1, MSG_NOSIGNAL) == 1;
  }

  bool carry_out(const std::vector<Operation>& operations) {
    ++group_;
    const int number = mischief().on_group(rank_);
    const auto is = [&](const char* what) {
      return number > 0 && number == mischief().number(what);
    };
    if (const int delay = mischief().number("delay"); delay > 0) {
      const auto seed = static_cast<std::uint64_t>(mischief().number("seed"));
      std::mt19937_64 random(seed * 1009 + group_ * 31 + static_cast<std::uint64_t>(rank_));
      std::this_thread::sleep_for(
          std::chrono::microseconds(random() % static_cast<unsigned>(delay)));
    }
    if (is("stall")) return pause([] { return false; });
    if (is("break"))
      for (const int peer : peers_)
        if (peer >= 0) shutdown(peer, SHUT_RDWR);
    std::vector<Way> ways;
    for (const Operation& operation : operations)
      ways.push_back({operation, {operation.count}, 0, operation.count});
    for (Way& way : ways) {
      if (!way.operation.sends || !(is("short") || is("long"))) continue;
      way.length = way.head.bytes += is("long") ? 1 : std::uint64_t(-1);
      break;
    }
    while (!aborted_) {
      bool over = true, moved = false;
      for (Way& way : ways) {
        const Step step = way.over() ? Step::kNothing : advance(way);
        if (step == Step::kBroken && mischief().number("quiet") == 0) return false;
        over = over && way.over();
        moved = moved || step == Step::kMoved;
      }
      if (over) return true;
      if (!moved) wait_for(ways);
    }
    return false;
  }

  enum class Step : std::uint8_t { kNothing, kMoved, kBroken };

  Step advance(Way& way) {
    const int peer = peers_[static_cast<std::size_t>(way.operation.peer)];
    const bool in_head = way.done < sizeof way.head;
    const std::size_t at = in_head ? way.done : way.done - sizeof way.head;
    auto* const from = in_head ? reinterpret_cast<std::byte*>(&way.head) : way.operation.data;
    static constexpr std::byte kTooMuch{};
    std::size_t left = (in_head ? sizeof way.head : way.length) - at;
    ssize_t moved = 0;
    if (way.operation.sends) {
      const std::byte* data = from + at;
      if (!in_head && at >= way.operation.count)
        data = &kTooMuch;
      else if (!in_head)
        left = std::min(left, way.operation.count - at);
      moved = ::send(peer, data, left, MSG_NOSIGNAL | MSG_DONTWAIT);
    } else {
      moved = ::recv(peer, from + at, left, MSG_DONTWAIT);
      if (moved == 0) return Step::kBroken;
    }
    if (moved < 0) return errno == EAGAIN ? Step::kNothing : Step::kBroken;
    way.done += static_cast<std::size_t>(moved);
    if (!way.operation.sends && in_head && way.done == sizeof way.head) {
      // Of less than was asked for it awaits the rest, as NCCL does.
      if (way.head.bytes > way.operation.count) return Step::kBroken;
    }
    return Step::kMoved;
  }

  void wait_for(const std::vector<Way>& ways) const {
    std::vector<pollfd> all;
    for (const Way& way : ways)
      if (!way.over())
        all.push_back({peers_[static_cast<std::size_t>(way.operation.peer)],
                       static_cast<short>(way.operation.sends ? POLLOUT : POLLIN), 0});
    (void)poll(all.data(), all.size(), 1);
    if (mischief().number("quiet") > 0) std::this_thread::sleep_for(1ms);
  }

  const int ranks_, rank_;
  const UniqueId id_;
  std::vector<int> peers_;  ///< connections, by rank
  std::uint64_t group_ = 0;
  std::atomic<Code> state_{kInProgress};
  std::atomic<bool> aborted_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::pair<Stream, std::vector<Operation>>> queue_;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace troupe::nccl

namespace {

std::atomic<int> alive{0};

/// What this thread's group has so far.
struct OpenGroup {
  int depth = 0;
  std::vector<std::pair<Comm, std::pair<Stream, Operation>>> operations;
};
thread_local OpenGroup open_group;

Code operation(const char* name, Operation operation, Comm comm, Stream stream) {
  if (const int code = mischief().on_call(name)) return static_cast<Code>(code);
  if (open_group.depth == 0 || !stream) return kInvalidUsage;
  open_group.operations.push_back({comm, {stream, operation}});
  return kSuccess;
}

}  // namespace

// --- NCCL ---------------------------------------------------------------------------------------

extern "C" {

void nccl_double_set(const char* what) { mischief().set(what); }
void nccl_double_release() { mischief().release(); }
int nccl_double_alive() { return alive; }
int nccl_double_groups() { return mischief().groups(); }

Code ncclGetVersion(int* version) {
  *version = mischief().number("version", 22809);
  return static_cast<Code>(mischief().on_call("ncclGetVersion"));
}

const char* ncclGetErrorString(Code code) {
  switch (code) {
    case kRemoteError:
      return "remote process exited or there was a network error";
    case kInternalError:
      return "internal error";
    default:
      return "an error of the double's";
  }
}

Code ncclGetUniqueId(UniqueId* id) {
  static std::atomic<int> made{0};
  if (const int code = mischief().on_call("ncclGetUniqueId")) return static_cast<Code>(code);
  const std::string name = "nccl-double-" + std::to_string(getpid()) + "-" + std::to_string(++made);
  std::memset(id->bytes, 0, sizeof id->bytes);
  std::memcpy(id->bytes, name.data(), name.size());
  return kSuccess;
}

Code ncclCommInitRankConfig(Comm* comm, int ranks, UniqueId id, int rank, Config* config) {
  own_rank = rank;
  if (const int code = mischief().on_call("ncclCommInitRankConfig")) return static_cast<Code>(code);
  if (config->magic != 0xcafebeef || config->size < sizeof(Config) || config->blocking != 0)
    return kInvalidUsage;
  ++alive;
  *comm = new NcclComm(ranks, rank, id);
  return kInProgress;
}

Code ncclCommGetAsyncError(Comm comm, Code* state) {
  if (const int code = mischief().on_call("ncclCommGetAsyncError")) return static_cast<Code>(code);
  *state = comm->state();
  return kSuccess;
}

Code ncclCommAbort(Comm comm) {
  own_rank = comm->rank();
  const int code = mischief().on_call("ncclCommAbort");
  delete comm;
  --alive;
  return static_cast<Code>(code);
}

Code ncclGroupStart() {
  if (const int code = mischief().on_call("ncclGroupStart")) return static_cast<Code>(code);
  ++open_group.depth;
  return kSuccess;
}

Code ncclGroupEnd() {
  if (open_group.depth == 0) return kInvalidUsage;
  --open_group.depth;
  auto operations = std::exchange(open_group.operations, {});
  if (const int code = mischief().on_call("ncclGroupEnd")) return static_cast<Code>(code);
  if (operations.empty()) return kSuccess;
  std::vector<Operation> group;
  for (const auto& [comm, entry] : operations) group.push_back(entry.second);
  operations.front().first->put(operations.front().second.first, std::move(group));
  return kInProgress;
}

Code ncclSend(const void* data, std::size_t count, int, int peer, Comm comm, Stream stream) {
  return operation("ncclSend",
                   {true, static_cast<std::byte*>(const_cast<void*>(data)), count, peer}, comm,
                   stream);
}

Code ncclRecv(void* data, std::size_t count, int, int peer, Comm comm, Stream stream) {
  return operation("ncclRecv", {false, static_cast<std::byte*>(data), count, peer}, comm, stream);
}

// --- CUDA's driver ------------------------------------------------------------------------------

int cuInit(unsigned) { return mischief().on_call("cuInit"); }

int cuGetErrorString(int, const char** words) {
  *words = "an error of the double's";
  return kCudaSuccess;
}

int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return mischief().on_call("cuDeviceGet");
}

int cuDevicePrimaryCtxRetain(Context* context, int) {
  *context = nullptr;
  return mischief().on_call("cuDevicePrimaryCtxRetain");
}

int cuDevicePrimaryCtxRelease_v2(int) { return kCudaSuccess; }
int cuCtxPushCurrent_v2(Context) { return kCudaSuccess; }
int cuCtxPopCurrent_v2(Context*) { return kCudaSuccess; }

int cuStreamCreate(Stream* stream, unsigned) {
  if (const int code = mischief().on_call("cuStreamCreate")) return code;
  *stream = new CudaStream;
  return kCudaSuccess;
}

int cuStreamQuery(Stream stream) {
  if (const int code = mischief().on_call("cuStreamQuery")) return code;
  return stream->under_way == 0 ? kCudaSuccess : kCudaNotReady;
}

int cuStreamDestroy_v2(Stream stream) {
  delete stream;
  return kCudaSuccess;
}

int cuMemHostAlloc(void** data, std::size_t bytes, unsigned) {
  if (const int code = mischief().on_call("cuMemHostAlloc")) return code;
  *data = std::aligned_alloc(4096, bytes);  // whole pages are asked for
  return kCudaSuccess;
}

int cuMemFreeHost(void* data) {
  std::free(data);
  return kCudaSuccess;
}

}  // extern "C"
