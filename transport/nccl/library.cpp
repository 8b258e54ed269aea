#include "transport/nccl/library.h"

#include "runtime/shared_object.h"

namespace troupe::nccl {
namespace {

constexpr const char* kInstall =
    "install NCCL 2.14 or later (libnccl2), or choose another --fabric";
/// The first with communicators whose making does not block.
constexpr int kOldest = 21400;
constexpr int kMajor = 2;

/// Since 2.9 the code has two digits more for the minor version.
int major_of(int version) { return version >= 10000 ? version / 10000 : version / 1000; }

std::string version_words(int version) {
  const int scale = version >= 10000 ? 10000 : 1000;
  return std::to_string(version / scale) + "." + std::to_string(version % scale / 100) + "." +
         std::to_string(version % 100);
}

}  // namespace

Result<std::shared_ptr<const Library>> Library::load(const std::string& path) {
  auto object = SharedObject::open(path, kInstall);
  if (!object.ok()) return object.error();
  auto library = std::make_shared<Library>();
  // The version first: another one may well lack some of the rest.
  object->find("ncclGetVersion", library->get_version_);
  object->find("ncclGetErrorString", library->error_string_);
  if (const Status there = object->missing(kInstall); !there.ok()) return there.error();
  if (const Status told = library->check(library->get_version_(&library->version_), "its version");
      !told.ok())
    return told.error();
  if (major_of(library->version_) != kMajor || library->version_ < kOldest)
    return unavailable(path + " is NCCL " + library->version_text() +
                       ", and version 2 from 2.14 on is needed; " + kInstall + ".");
  object->find("ncclGetUniqueId", library->get_unique_id);
  object->find("ncclCommInitRankConfig", library->comm_init);
  object->find("ncclCommGetAsyncError", library->comm_async_error);
  object->find("ncclCommAbort", library->comm_abort);
  object->find("ncclGroupStart", library->group_start);
  object->find("ncclGroupEnd", library->group_end);
  object->find("ncclSend", library->send);
  object->find("ncclRecv", library->recv);
  if (const Status there = object->missing(kInstall); !there.ok()) return there.error();
  return std::shared_ptr<const Library>(std::move(library));
}

std::string Library::version_text() const { return version_words(version_); }

Status Library::check(Code code, const std::string& what) const {
  if (code == kSuccess || code == kInProgress) return {};
  const char* words = error_string_(code);
  return unavailable("NCCL failed at " + what + ": " +
                     (words ? words : "error " + std::to_string(code)) + ".");
}

}  // namespace troupe::nccl
