/// What we say of NCCL and the driver is what their headers say, where there are some.
#include "transport/nccl/abi.h"

#include <cuda.h>
#include <doctest/doctest.h>
#include <nccl.h>

#include <cstddef>
#include <type_traits>

namespace troupe::nccl {
namespace {

/// To the caller they are the same: as many arguments, each as large and in the same registers.
template <class Ours, class Theirs>
struct Alike : std::false_type {};
template <class R, class... A, class S, class... B>
requires(sizeof...(A) == sizeof...(B)) struct Alike<R (*)(A...), S (*)(B...)>
    : std::bool_constant<sizeof(R) == sizeof(S) &&
                         ((sizeof(A) == sizeof(B) && std::is_class_v<A> == std::is_class_v<B> &&
                           std::is_pointer_v<A> == std::is_pointer_v<B>)&&...)> {
};
template <class Ours, class Theirs>
constexpr bool alike(Theirs*) {
  return Alike<Ours, Theirs*>::value;
}

static_assert(alike<GetVersion>(&ncclGetVersion));
static_assert(alike<GetUniqueId>(&ncclGetUniqueId));
static_assert(alike<CommInitRankConfig>(&ncclCommInitRankConfig));
static_assert(alike<CommGetAsyncError>(&ncclCommGetAsyncError));
static_assert(alike<CommAbort>(&ncclCommAbort));
static_assert(alike<GetErrorString>(&ncclGetErrorString));
static_assert(alike<GroupStart>(&ncclGroupStart) && alike<GroupEnd>(&ncclGroupEnd));
static_assert(alike<Send>(&ncclSend) && alike<Recv>(&ncclRecv));
static_assert(sizeof(UniqueId) == sizeof(ncclUniqueId));
static_assert(int{kUint8} == int{ncclUint8});
static_assert(int{kSuccess} == int{ncclSuccess} && int{kInProgress} == int{ncclInProgress} &&
              int{kRemoteError} == int{ncclRemoteError} &&
              int{kInvalidUsage} == int{ncclInvalidUsage});
static_assert(offsetof(Config, size) == offsetof(ncclConfig_t, size) &&
              offsetof(Config, magic) == offsetof(ncclConfig_t, magic) &&
              offsetof(Config, version) == offsetof(ncclConfig_t, version) &&
              offsetof(Config, blocking) == offsetof(ncclConfig_t, blocking));

static_assert(alike<CuInit>(&::cuInit) && alike<CuDeviceGet>(&::cuDeviceGet));
static_assert(alike<CuDevicePrimaryCtxRetain>(&::cuDevicePrimaryCtxRetain));
static_assert(alike<CuDevicePrimaryCtxRelease>(&::cuDevicePrimaryCtxRelease));
static_assert(alike<CuCtxPushCurrent>(&::cuCtxPushCurrent));
static_assert(alike<CuCtxPopCurrent>(&::cuCtxPopCurrent));
static_assert(alike<CuStreamCreate>(&::cuStreamCreate) && alike<CuStreamQuery>(&::cuStreamQuery));
static_assert(alike<CuStreamDestroy>(&::cuStreamDestroy));
static_assert(alike<CuMemHostAlloc>(&::cuMemHostAlloc) && alike<CuMemFreeHost>(&::cuMemFreeHost));
static_assert(alike<CuGetErrorString>(&::cuGetErrorString));
static_assert(kCudaSuccess == int{CUDA_SUCCESS} && kCudaNotReady == int{CUDA_ERROR_NOT_READY});
static_assert(kCudaStreamNonBlocking == unsigned{CU_STREAM_NON_BLOCKING} &&
              kCudaHostPortable == unsigned{CU_MEMHOSTALLOC_PORTABLE});

TEST_CASE("what we say of a configuration is what NCCL's own initialiser says") {
  const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
  CHECK(Config().magic == theirs.magic);
  CHECK(Config().version <= theirs.version);
}

}  // namespace
}  // namespace troupe::nccl
