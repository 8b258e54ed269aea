#pragma once

#include <cassert>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace troupe {

/// Why something failed, for programs. People read the message.
enum class ErrorCode : unsigned char {
  kInvalidArgument,  ///< The caller asked for something that makes no sense.
  kNotFound,         ///< A file, a name or an actor does not exist.
  kCorrupt,          ///< Bytes from outside break their format.
  kRefused,          ///< A peer or a rule said no: wrong certificate, protocol, checkpoint, token.
  kResourceExhausted,  ///< A bound was reached: memory, queue, connections.
  kUnavailable,        ///< Not now: a peer is down, the cluster is not ready.
  kDeadlineExceeded,   ///< It took longer than it may.
  kCancelled,          ///< The one who asked went away.
  kInternal,           ///< A defect of this program.
};

std::string_view to_string(ErrorCode code);

/// Whether the same request may well succeed a moment later, or elsewhere: it is not at fault.
constexpr bool passing(ErrorCode code) {
  return code == ErrorCode::kUnavailable || code == ErrorCode::kDeadlineExceeded ||
         code == ErrorCode::kResourceExhausted;
}

/// What happened, to what, and what to do: one sentence for people and a code for programs.
struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
};

/// A value or an error; the project's only error idiom. Exceptions of libraries are turned into one
/// at the place where the library is called.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & { assert(ok()); return *std::get_if<0>(&state_); }
  const T& value() const& { assert(ok()); return *std::get_if<0>(&state_); }
  T&& value() && { assert(ok()); return std::move(*std::get_if<0>(&state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const Error& error() const { assert(!ok()); return *std::get_if<1>(&state_); }

 private:
  std::variant<T, Error> state_;
};

/// Success or an error.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Error error) : error_(std::move(error)), failed_(true) {}

  bool ok() const { return !failed_; }
  explicit operator bool() const { return ok(); }
  const Error& error() const { assert(failed_); return error_; }

 private:
  Error error_;
  bool failed_ = false;
};

inline Error invalid_argument(std::string m) { return {ErrorCode::kInvalidArgument, std::move(m)}; }
inline Error not_found(std::string m) { return {ErrorCode::kNotFound, std::move(m)}; }
inline Error corrupt(std::string m) { return {ErrorCode::kCorrupt, std::move(m)}; }
inline Error refused(std::string m) { return {ErrorCode::kRefused, std::move(m)}; }
inline Error resource_exhausted(std::string m) {
  return {ErrorCode::kResourceExhausted, std::move(m)};
}
inline Error unavailable(std::string m) { return {ErrorCode::kUnavailable, std::move(m)}; }
inline Error deadline_exceeded(std::string m) {
  return {ErrorCode::kDeadlineExceeded, std::move(m)};
}
inline Error cancelled(std::string m) { return {ErrorCode::kCancelled, std::move(m)}; }
inline Error internal_error(std::string m) { return {ErrorCode::kInternal, std::move(m)}; }

}  // namespace troupe
