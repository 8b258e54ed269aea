#pragma once

#include <climits>
#include <cstddef>

/// What we use of the C interfaces of libnccl.so.2 (2.14 and later) and of libcuda.so.1, as their
/// headers have it: both are loaded at run time, and neither is needed to build.
/// tests/transport/nccl/abi_test.cpp compares it with the headers where there are some.
namespace troupe::nccl {

extern "C" {

// --- NCCL ---------------------------------------------------------------------------------------

using Comm = struct NcclComm*;

inline constexpr std::size_t kUniqueIdBytes = 128;
struct UniqueId {
  char bytes[kUniqueIdBytes];
};

/// ncclResult_t; a newer library may know more.
enum Code : int {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,
};

/// ncclDataType_t: parts are bytes to NCCL.
inline constexpr int kUint8 = 1;

/// ncclConfig_t of 2.14, the first that knows non-blocking communicators; later ones are longer,
/// and take from `size` and `version` what is left to its defaults.
struct Config {
  std::size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = 21400;
  int blocking = 0;
};

/// cudaStream_t, which is a CUstream: who makes streams is Driver below, whoever uses them need not
/// know what they are.
using Stream = struct CudaStream*;

using GetVersion = Code (*)(int*);
using GetUniqueId = Code (*)(UniqueId*);
using CommInitRankConfig = Code (*)(Comm*, int ranks, UniqueId, int rank, Config*);
using CommGetAsyncError = Code (*)(Comm, Code*);
using CommAbort = Code (*)(Comm);
using GetErrorString = const char* (*)(Code);
using GroupStart = Code (*)();
using GroupEnd = Code (*)();
using Send = Code (*)(const void*, std::size_t count, int type, int peer, Comm, Stream);
using Recv = Code (*)(void*, std::size_t count, int type, int peer, Comm, Stream);

// --- CUDA's driver ------------------------------------------------------------------------------

using Context = struct CudaContext*;

/// CUresult: that which is asked for here by name.
inline constexpr int kCudaSuccess = 0;
inline constexpr int kCudaNotReady = 600;
inline constexpr unsigned kCudaStreamNonBlocking = 1;
inline constexpr unsigned kCudaHostPortable = 1;  ///< pinned for all contexts

using CuInit = int (*)(unsigned);
using CuDeviceGet = int (*)(int* device, int ordinal);
using CuDevicePrimaryCtxRetain = int (*)(Context*, int device);
using CuDevicePrimaryCtxRelease = int (*)(int device);
using CuCtxPushCurrent = int (*)(Context);
using CuCtxPopCurrent = int (*)(Context*);
using CuStreamCreate = int (*)(Stream*, unsigned flags);
using CuStreamQuery = int (*)(Stream);
using CuStreamDestroy = int (*)(Stream);
using CuMemHostAlloc = int (*)(void**, std::size_t, unsigned flags);
using CuMemFreeHost = int (*)(void*);
using CuGetErrorString = int (*)(int, const char**);

}  // extern "C"

}  // namespace troupe::nccl
