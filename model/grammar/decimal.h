#pragma once

#include <compare>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

namespace troupe {

/// A JSON number, exactly. Zero has no sign. Exponents are bounded by what the parser of JSON
/// takes: a double's.
class Decimal {
 public:
  Decimal() = default;
  explicit Decimal(long long value) : Decimal(parse(std::to_string(value))) {}
  /// `text` must be a JSON number.
  static Decimal parse(std::string_view text);

  bool negative() const { return negative_; }
  bool is_zero() const { return whole_ == "0" && fraction_.empty(); }
  bool is_integer() const { return fraction_.empty(); }
  /// Digits before the point, without needless zeros; and those behind it, none at the end.
  const std::string& whole() const& { return whole_; }
  std::string whole() && { return std::move(whole_); }
  const std::string& fraction() const& { return fraction_; }
  Decimal negated() const;
  /// The next integer below or at, above or at.
  Decimal floor() const;
  Decimal ceiling() const;
  /// For integers.
  Decimal plus_one() const;
  Decimal minus_one() const { return negated().plus_one().negated(); }

  friend bool operator==(const Decimal&, const Decimal&) = default;
  friend std::strong_ordering operator<=>(const Decimal& a, const Decimal& b);

 private:
  bool negative_ = false;
  std::string whole_ = "0";
  std::string fraction_;
};

}  // namespace troupe
