#include <algorithm>
#include <cstring>
#include <utility>

#include "model/gguf/block_format.h"
#include "model/gguf/gguf.h"
#include "runtime/limits.h"

namespace troupe {
namespace {

constexpr std::uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr std::uint32_t kSwapped = 0x03000000;
constexpr std::int64_t kDefaultAlignment = 32, kAlignmentMax = 1 << 20;
constexpr std::uint64_t kNameBytesMax = 1024;
constexpr std::uint32_t kAxesMax = 4;
constexpr std::int64_t kAxisMax = std::int64_t{1} << 48;
/// The least that an entry takes.
constexpr std::uint64_t kPairBytes = 8 + 1 + 4 + 1, kTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;

enum ValueType : std::uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64,
  kValueTypes
};

/// Bytes of one value; of a string or a list: of its length.
constexpr std::uint64_t kValueBytes[kValueTypes] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};

class Parser {
 public:
  Parser(std::span<const std::byte> head, std::uint64_t file_size, const std::string& file)
      : head_(head), file_size_(file_size), file_(file) {}

  Result<GgufHeader> run() {
    read_counts();
    for (std::uint64_t i = 0; i < pairs_ && status_; ++i) read_pair();
    for (std::uint64_t i = 0; i < tensors_ && status_; ++i) read_tensor();
    if (status_) place_tensors();
    if (!status_) return status_.error();
    return std::move(out_);
  }

 private:
  void fail(const std::string& what) {
    if (status_) status_ = corrupt(file_ + ": " + what);
  }

  /// Whether so many bytes are left.
  bool left(std::uint64_t bytes) {
    if (status_ && bytes <= head_.size() - at_) return true;
    fail(head_.size() < file_size_
             ? "its metadata should end within " + std::to_string(head_.size()) + " bytes"
             : "is truncated in its metadata; get the file again");
    return false;
  }

  template <class T>
  T number() {
    T value{};
    if (!left(sizeof value)) return value;
    std::memcpy(&value, head_.data() + at_, sizeof value);
    at_ += sizeof value;
    return value;
  }

  std::string string(std::uint64_t bytes_max) {
    const auto bytes = number<std::uint64_t>();
    if (!left(bytes)) return {};
    if (bytes > bytes_max) {
      fail("holds a name of " + std::to_string(bytes) + " bytes, " + std::to_string(bytes_max) +
           " may be");
      return {};
    }
    std::string text(reinterpret_cast<const char*>(head_.data()) + at_,
                     static_cast<std::size_t>(bytes));
    at_ += bytes;
    return text;
  }
  std::string name() { return string(kNameBytesMax); }
  std::string text() { return string(head_.size()); }

  void read_counts() {
    if (number<std::uint32_t>() != kMagic)
      return fail("should begin with \"GGUF\"; give a GGUF file or the folder of a checkpoint");
    const auto version = number<std::uint32_t>();
    if (version >= kSwapped && version % 256 == 0)
      return fail("is big-endian; convert it to little-endian");
    if (version != 2 && version != 3)
      return fail("is GGUF version " + std::to_string(version) + ", but 2 and 3 are supported");
    tensors_ = number<std::uint64_t>();
    pairs_ = number<std::uint64_t>();
    const std::uint64_t rest = head_.size() - at_;
    if (tensors_ > rest / kTensorBytes || pairs_ > rest / kPairBytes)
      fail("claims " + std::to_string(tensors_) + " tensors and " + std::to_string(pairs_) +
           " keys, more than fit into it");
  }

  std::int64_t integer(std::uint32_t type, const std::string& key) {
    switch (type) {
      case kU8:
        return number<std::uint8_t>();
      case kI8:
        return number<std::int8_t>();
      case kU16:
        return number<std::uint16_t>();
      case kI16:
        return number<std::int16_t>();
      case kU32:
        return number<std::uint32_t>();
      case kI32:
        return number<std::int32_t>();
      case kI64:
        return number<std::int64_t>();
      case kU64:
        break;
      default:
        return flag(key);
    }
    const auto value = number<std::uint64_t>();
    if (value > INT64_MAX) fail(key + " should be below 2^63");
    return static_cast<std::int64_t>(value);
  }
  bool flag(const std::string& key) {
    const auto value = number<std::uint8_t>();
    if (value > 1) fail(key + " should be a flag, 0 or 1, but is " + std::to_string(value));
    return value == 1;
  }
  double real(std::uint32_t type) { return type == kF32 ? number<float>() : number<double>(); }

  void read_pair() {
    const std::string key = name();
    const auto type = number<std::uint32_t>();
    GgufValue value;
    if (type == kArray)
      value = list(key);
    else if (type == kString)
      value = text();
    else if (type == kBool)
      value = flag(key);
    else if (type == kF32 || type == kF64)
      value = real(type);
    else if (type < kValueTypes)
      value = integer(type, key);
    else
      fail(key + " has a type that GGUF does not know, " + std::to_string(type));
    if (status_ && !out_.metadata.emplace(key, std::move(value)).second)
      fail(key + " is there twice");
  }

  GgufValue list(const std::string& key) {
    const auto type = number<std::uint32_t>();
    const auto count = number<std::uint64_t>();
    if (type >= kValueTypes || type == kArray) {
      fail(key + " is a list of " + (type == kArray ? "lists" : "something unknown") +
           ", but should be of numbers or strings");
      return {};
    }
    if (!status_ || count > (head_.size() - at_) / kValueBytes[type]) {
      fail(key + " claims " + std::to_string(count) + " entries, more than fit into the file");
      return {};
    }
    if (type == kString) return entries<std::string>(count, [&] { return text(); });
    if (type == kF32 || type == kF64) return entries<double>(count, [&] { return real(type); });
    return entries<std::int64_t>(count, [&] { return integer(type, key); });
  }
  template <class T, class Read>
  std::vector<T> entries(std::uint64_t count, const Read& read) {
    std::vector<T> values;
    for (std::uint64_t i = 0; i < count && status_; ++i) values.push_back(read());
    return values;
  }

  void read_tensor() {
    const std::string tensor = name();
    const std::string named = "tensor " + tensor.substr(0, 256);
    const auto axes = number<std::uint32_t>();
    if (status_ && (axes < 1 || axes > kAxesMax))
      return fail(named + " should have 1 to 4 axes, but has " + std::to_string(axes));
    TensorInfo info;
    for (std::uint32_t i = 0; i < axes && status_; ++i) {
      const auto size = number<std::int64_t>();
      if (size < 1 || size > kAxisMax) fail(named + " has an axis of " + std::to_string(size));
      info.shape.insert(info.shape.begin(), size);
    }
    const auto id = number<std::uint32_t>();
    info.offset = number<std::uint64_t>();
    if (!status_) return;
    const GgufType* type = gguf_type(id);
    if (!type)
      return fail(named + " is stored as " + gguf_type_name(id) + "; the types supported are " +
                  gguf_types_in_words());
    info.dtype = type->dtype;
    info.blocks = type->blocks;
    if (!count_bytes(info))
      return fail(named + " has sizes that do not suit " + gguf_type_name(id));
    if (!out_.tensors.emplace(tensor, std::move(info)).second) fail(named + " is there twice");
  }

  /// False: rows are no whole blocks, or it would have 2^64 bytes or more.
  static bool count_bytes(TensorInfo& info) {
    const std::int64_t numbers = info.blocks ? info.blocks->numbers : 1;
    if (info.shape.back() % numbers != 0) return false;
    info.bytes =
        info.blocks ? static_cast<std::uint64_t>(info.blocks->bytes) : dtype_size(info.dtype);
    for (std::size_t i = 0; i < info.shape.size(); ++i) {
      const std::int64_t units = info.shape[i] / (i + 1 == info.shape.size() ? numbers : 1);
      if (__builtin_mul_overflow(info.bytes, static_cast<std::uint64_t>(units), &info.bytes))
        return false;
    }
    return true;
  }

  void place_tensors() {
    std::int64_t alignment = kDefaultAlignment;
    if (out_.metadata.contains("general.alignment")) {
      const auto* told = out_.get<std::int64_t>("general.alignment");
      if (!told || *told < 1 || *told > kAlignmentMax || (*told & (*told - 1)) != 0)
        return fail("general.alignment should be a power of two of at most 2^20");
      alignment = *told;
    }
    const auto step = static_cast<std::uint64_t>(alignment);
    out_.data_offset = (at_ + step - 1) / step * step;
    if (out_.data_offset > file_size_ && out_.tensors.empty()) out_.data_offset = file_size_;
    const std::uint64_t room = file_size_ - std::min(out_.data_offset, file_size_);
    std::vector<std::pair<const std::string*, const TensorInfo*>> order;
    for (const auto& [name, info] : out_.tensors) {
      if (info.offset % step != 0)
        return fail("tensor " + name + " should begin at a multiple of " + std::to_string(step) +
                    " bytes, but begins at " + std::to_string(info.offset));
      if (info.offset > room || info.bytes > room - info.offset)
        return fail("tensor " + name + " should have " + std::to_string(info.bytes) +
                    " bytes from byte " + std::to_string(info.offset) +
                    " of the data, but the file has " + std::to_string(room) +
                    "; it is truncated or its offsets are wrong");
      order.emplace_back(&name, &info);
    }
    std::sort(order.begin(), order.end(),
              [](const auto& a, const auto& b) { return a.second->offset < b.second->offset; });
    for (std::size_t i = 1; i < order.size(); ++i)
      if (order[i - 1].second->offset + order[i - 1].second->bytes > order[i].second->offset)
        return fail("tensor " + *order[i].first + " overlaps tensor " + *order[i - 1].first);
  }

  const std::span<const std::byte> head_;
  const std::uint64_t file_size_;
  const std::string& file_;
  std::uint64_t at_ = 0, tensors_ = 0, pairs_ = 0;
  GgufHeader out_;
  Status status_;
};

}  // namespace

Result<GgufHeader> parse_gguf(std::span<const std::byte> head, std::uint64_t file_size,
                              const std::string& file) {
  return Parser(head, file_size, file).run();
}

}  // namespace troupe
