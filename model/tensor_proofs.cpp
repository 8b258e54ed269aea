#include "model/tensor_proofs.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "model/file_error.h"
#include "model/tensor_hash.h"
#include "model/weight_file.h"
#include "runtime/buffer.h"

namespace troupe {
namespace {

/// Where O_DIRECT reads may begin and end, and buffers lie: no block device wants more.
constexpr std::uint64_t kBlock = 4096;
constexpr std::size_t kPieceBytes = 1u << 20;

/// Reads ranges of one file past the page cache.
class StorageReader {
 public:
  explicit StorageReader(const WeightFile& file)
      : file_(file), direct_(file.open_direct()), room_(kPieceBytes + 2 * kBlock) {
    const auto at = reinterpret_cast<std::uintptr_t>(room_.data());
    aligned_ = room_.data() + (kBlock - at % kBlock) % kBlock;
  }
  ~StorageReader() {
    if (direct_ >= 0) ::close(direct_);
  }
  StorageReader(const StorageReader&) = delete;
  StorageReader& operator=(const StorageReader&) = delete;

  const WeightFile& file() const { return file_; }

  /// Up to `bytes` bytes from `offset` on, at least one; valid until the next call.
  Result<std::span<const std::byte>> read(std::uint64_t offset, std::uint64_t bytes) {
    const std::uint64_t skipped = offset % kBlock;
    const auto wanted = static_cast<std::size_t>(std::min<std::uint64_t>(bytes, kPieceBytes));
    if (direct_ >= 0) {
      const std::size_t blocks = (skipped + wanted + kBlock - 1) / kBlock * kBlock;
      ssize_t got = 0;
      do got = ::pread(direct_, aligned_, blocks, static_cast<off_t>(offset - skipped));
      while (got < 0 && errno == EINTR);
      const auto usable = got > 0 ? static_cast<std::uint64_t>(got) : 0;
      if (usable > skipped)
        return std::span<const std::byte>(aligned_ + skipped,
                                          std::min<std::size_t>(usable - skipped, wanted));
      if (got >= 0) return corrupt(file_.path() + " ends too early");
      if (errno != EINVAL && errno != EOPNOTSUPP)
        return file_error(file_.path(), "cannot be read at byte " + std::to_string(offset), errno);
      ::close(std::exchange(direct_, -1));  // some file systems only say now that they have it not
    }
    // Whole pages only are forgotten, so the range is widened to them.
    ::posix_fadvise(file_.descriptor(), static_cast<off_t>(offset - skipped),
                    static_cast<off_t>(wanted + 2 * kBlock), POSIX_FADV_DONTNEED);
    const std::span<std::byte> out(aligned_, wanted);
    if (auto status = file_.read(offset, out); !status) return status.error();
    return std::span<const std::byte>(out);
  }

 private:
  const WeightFile& file_;
  int direct_;
  Buffer room_;
  std::byte* aligned_ = nullptr;
};

Result<TensorProof> read_proof(const Checkpoint& checkpoint, const StoredTensor& tensor,
                               StorageReader& reader, const std::atomic<bool>* stop) {
  TensorHash hash(*tensor.info, split_axis(tensor.name));
  for (std::uint64_t at = 0; at < tensor.info->bytes;) {
    if (stop && *stop) return cancelled("Nobody wants to know any more.");
    const auto bytes = reader.read(tensor.offset + at, tensor.info->bytes - at);
    if (!bytes) return checkpoint.failed(tensor, bytes.error());
    hash.add(*bytes);
    at += bytes->size();
  }
  if (auto status = checkpoint.confirm(tensor); !status) return status.error();
  return TensorProof{std::string(tensor.name), tensor.file->name(), hash.digests(), {}};
}

}  // namespace

Result<std::vector<TensorProof>> read_proofs(const Checkpoint& checkpoint,
                                             std::span<const std::string> tensors,
                                             const std::atomic<bool>* cancelled) {
  std::vector<TensorProof> proofs;
  std::unique_ptr<StorageReader> reader;  // of the file at hand
  for (const std::string& name : tensors) {
    const auto tensor = checkpoint.find(name);
    if (!tensor) return tensor.error();
    if (!reader || &reader->file() != tensor->file)
      reader = std::make_unique<StorageReader>(*tensor->file);
    auto proof = read_proof(checkpoint, *tensor, *reader, cancelled);
    if (!proof) return proof.error();
    proofs.push_back(std::move(*proof));
  }
  return proofs;
}

}  // namespace troupe
