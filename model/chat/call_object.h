#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "model/chat/json_extent.h"

namespace troupe {

/// A call that is a JSON object, read as it comes:
///
///     {"name": "f", "arguments": {...}}     or "parameters", in any order
///
/// Other members are passed over. Arguments that stand in quotes are taken out of them.
class CallObject {
 public:
  /// Takes text until the object ends or is none; returns how much.
  std::size_t feed(std::string_view text);
  bool done() const { return state_ == State::kDone; }
  bool broken() const { return state_ == State::kBroken; }
  /// The name is known, and there are arguments or no more can come.
  bool is_call() const { return !name_.empty() && (begun_ || done()); }
  const std::string& name() const { return name_; }
  /// What arguments there are since the last time; an object that ends without any has {}.
  std::string take_arguments();

 private:
  enum class State : unsigned char {
    kOpen,
    kKey,
    kInKey,
    kColon,
    kValue,
    kInValue,
    kNext,
    kDone,
    kBroken
  };
  enum class Member : unsigned char { kName, kArguments, kOther };

  bool take(char c);
  bool take_value(char c);
  void end_value();
  Member member(std::string_view key) const;

  State state_ = State::kOpen;
  std::string text_;  // The key; of the name, and of arguments in quotes, the value.
  Member member_ = Member::kOther;
  JsonExtent extent_;
  bool escaped_ = false, quoted_ = false;
  bool begun_ = false;  // The arguments.
  std::string name_, arguments_;
};

}  // namespace troupe
