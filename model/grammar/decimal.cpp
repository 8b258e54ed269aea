#include "model/grammar/decimal.h"

#include <charconv>

namespace troupe {
namespace {

std::strong_ordering compare_magnitude(const Decimal& a, const Decimal& b) {
  if (a.whole().size() != b.whole().size()) return a.whole().size() <=> b.whole().size();
  if (const auto order = a.whole() <=> b.whole(); order != 0) return order;
  return a.fraction() <=> b.fraction();
}

}  // namespace

Decimal Decimal::parse(std::string_view text) {
  Decimal out;
  if (text.starts_with('-')) {
    out.negative_ = true;
    text.remove_prefix(1);
  }
  const std::size_t mark = text.find_first_of("eE");
  int exponent = 0;
  if (mark != std::string_view::npos) {
    std::string_view digits = text.substr(mark + 1);
    if (digits.starts_with('+')) digits.remove_prefix(1);
    // Beyond the range of int, the digits are zero: the parser refuses what is too large.
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), exponent);
    if (error != std::errc()) exponent = -400;
    text = text.substr(0, mark);
  }
  const std::size_t point = text.find('.');
  std::string digits(text.substr(0, point));
  const auto before = static_cast<long>(digits.size());
  if (point != std::string_view::npos) digits += text.substr(point + 1);
  // No double is as small as 1e-400: there it is zero, as for whoever reads it.
  constexpr int kExponentMax = 400;
  if (exponent < -kExponentMax || exponent > kExponentMax) digits.assign(digits.size(), '0');
  long split = before + std::min(std::max(exponent, -kExponentMax), kExponentMax);
  if (split < 0) digits.insert(0, static_cast<std::size_t>(-split), '0');
  if (split > static_cast<long>(digits.size()))
    digits.append(static_cast<std::size_t>(split) - digits.size(), '0');
  split = std::max(split, 0l);
  out.whole_ = digits.substr(0, static_cast<std::size_t>(split));
  out.fraction_ = digits.substr(static_cast<std::size_t>(split));
  out.whole_.erase(0, std::min(out.whole_.find_first_not_of('0'), out.whole_.size()));
  if (out.whole_.empty()) out.whole_ = "0";
  while (out.fraction_.ends_with('0')) out.fraction_.pop_back();
  if (out.is_zero()) out.negative_ = false;
  return out;
}

Decimal Decimal::negated() const {
  Decimal out = *this;
  out.negative_ = !negative_ && !is_zero();
  return out;
}

Decimal Decimal::floor() const {
  Decimal out = *this;
  out.fraction_.clear();
  if (is_integer()) return out;
  if (!negative_) return out;
  out.negative_ = false;
  return out.plus_one().negated();
}

Decimal Decimal::ceiling() const { return negated().floor().negated(); }

Decimal Decimal::plus_one() const {
  Decimal out = *this;
  if (negative_) {
    std::size_t i = out.whole_.size();
    while (out.whole_[i - 1] == '0') out.whole_[--i] = '9';
    --out.whole_[i - 1];
  } else {
    std::size_t i = out.whole_.size();
    while (i > 0 && out.whole_[i - 1] == '9') out.whole_[--i] = '0';
    if (i > 0)
      ++out.whole_[i - 1];
    else
      out.whole_.insert(0, 1, '1');
  }
  if (out.whole_.size() > 1 && out.whole_.front() == '0') out.whole_.erase(0, 1);
  if (out.is_zero()) out.negative_ = false;
  return out;
}

std::strong_ordering operator<=>(const Decimal& a, const Decimal& b) {
  if (a.negative_ != b.negative_)
    return a.negative_ ? std::strong_ordering::less : std::strong_ordering::greater;
  return a.negative_ ? compare_magnitude(b, a) : compare_magnitude(a, b);
}

}  // namespace troupe
