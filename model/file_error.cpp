#include "model/file_error.h"

#include <cerrno>
#include <cstring>

#include "model/model_path.h"

namespace troupe {
namespace {

struct Kind {
  ErrorCode code = ErrorCode::kCorrupt;
  const char* advice = "";
};

Kind kind_of(int error) {
  switch (error) {
    case EINTR:
    case EAGAIN:
      return {ErrorCode::kUnavailable, ""};
    case EMFILE:
    case ENFILE:
      return {ErrorCode::kUnavailable, "; raise the limit of open files (ulimit -n)"};
    case ENOMEM:
    case ENOBUFS:
      return {ErrorCode::kUnavailable, "; this machine is out of memory"};
    case ENOENT:
    case ENXIO:
    case ENODEV:
      return {ErrorCode::kNotFound, ""};
    case ENOTDIR:
      return {ErrorCode::kNotFound, "; a part of this path is no folder"};
    case ESTALE:
      return {ErrorCode::kCorrupt, "; its network file system has lost it: mount that again"};
    case ENOTCONN:
    case ETIMEDOUT:
    case EHOSTDOWN:
    case EHOSTUNREACH:
      return {ErrorCode::kCorrupt, "; its network file system does not answer"};
    case EACCES:
    case EPERM:
      return {ErrorCode::kRefused, "; let the user that runs troupe read it"};
    case EIO:
      return {ErrorCode::kCorrupt, "; the storage that it lies on fails"};
    default:
      return {};
  }
}

}  // namespace

Error file_error(const std::string& path, std::string_view what, int error) {
  const Kind kind = kind_of(error);
  return {kind.code, path + " " + std::string(what) + ": " + std::strerror(error) + kind.advice +
                         (error == ENOENT ? pull_advice(path) : "")};
}

}  // namespace troupe
