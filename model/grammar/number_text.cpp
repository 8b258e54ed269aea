#include "model/grammar/number_text.h"

#include <algorithm>
#include <string_view>

namespace troupe {
namespace {

constexpr std::size_t kWholeDigitsMax = 20;
constexpr std::size_t kFractionDigitsMax = 20;
/// Decimals of so many digits are different doubles if they differ.
constexpr std::size_t kExactDigits = 15;

using Choices = std::vector<Regex>;

Regex digit(char first, char last) {
  return Regex::set(
      CodeSet({{static_cast<unsigned char>(first), static_cast<unsigned char>(last)}}));
}

Regex digits(std::size_t min, std::size_t max) { return Regex::repeat(digit('0', '9'), min, max); }

std::optional<Regex> any_of(Choices choices) {
  if (choices.empty()) return std::nullopt;
  if (choices.size() == 1) return std::move(choices.front());
  Regex out;
  out.kind = Regex::Kind::kAlternate;
  out.parts = std::move(choices);
  return out;
}

Regex optional_part(Regex part) { return Regex::repeat(std::move(part), 0, 1); }

/// Digits of one length from `low` to `high`; an empty bound is none.
Regex digits_between(std::string_view low, std::string_view high) {
  const std::size_t length = std::max(low.size(), high.size());
  if (length == 0) return {};
  if (low.find_first_not_of('0') == std::string_view::npos) low = {};
  if (high.find_first_not_of('9') == std::string_view::npos) high = {};
  if (low.empty() && high.empty()) return digits(length, length);
  const char first = low.empty() ? '0' : low.front();
  const char last = high.empty() ? '9' : high.front();
  const std::string_view low_rest = low.empty() ? low : low.substr(1);
  const std::string_view high_rest = high.empty() ? high : high.substr(1);
  if (first == last)
    return Regex::concat(
        {digit(first, first),
         length == 1 ? Regex{}
                     : digits_between(
                           low.empty() ? std::string(length - 1, '0') : std::string(low_rest),
                           high.empty() ? std::string(length - 1, '9') : std::string(high_rest))});
  const std::string zeros(length - 1, '0');
  const std::string nines(length - 1, '9');
  Choices out;
  char middle_first = first;
  char middle_last = last;
  if (!low.empty()) {
    out.push_back(Regex::concat({digit(first, first), digits_between(low_rest, nines)}));
    ++middle_first;
  }
  if (!high.empty()) --middle_last;
  if (middle_first <= middle_last)
    out.push_back(
        Regex::concat({digit(middle_first, middle_last), digits(length - 1, length - 1)}));
  if (!high.empty())
    out.push_back(Regex::concat({digit(last, last), digits_between(zeros, high_rest)}));
  return *any_of(std::move(out));
}

/// Integers without sign from `low` to `high`, which may be none.
std::optional<Regex> whole_between(const Decimal& low, const std::optional<Decimal>& high) {
  const std::string& a = low.whole();
  const std::string b =
      high ? high->whole() : std::string(std::max(kWholeDigitsMax, a.size()), '9');
  if (high && *high < low) return std::nullopt;
  if (a.size() == b.size()) return digits_between(a, b);
  Choices out;
  out.push_back(digits_between(a, std::string(a.size(), '9')));
  if (a.size() + 1 < b.size())
    out.push_back(Regex::concat({digit('1', '9'), digits(a.size(), b.size() - 2)}));
  out.push_back(digits_between("1" + std::string(b.size() - 1, '0'), b));
  return any_of(std::move(out));
}

/// What a bound leaves of its digits behind the point.
struct Bound {
  std::string_view digits;
  bool exclusive = false;

  Bound rest() const { return {digits.empty() ? digits : digits.substr(1), exclusive}; }
  char next() const { return digits.empty() ? '0' : digits.front(); }
};

/// The digits behind the point between two bounds, where that is still open; at least `min`.
std::optional<Regex> fraction_between(std::optional<Bound> low, std::optional<Bound> high,
                                      std::size_t min, std::size_t max) {
  if (low && low->digits.empty() && !low->exclusive) low.reset();
  if (high && high->digits.empty()) {
    if (high->exclusive || low) return std::nullopt;
    return Regex::repeat(digit('0', '0'), min, max);
  }
  if (!low && !high) return digits(min, max);
  if (low && low->digits.empty() && !high)
    return Regex::concat(
        {Regex::repeat(digit('0', '0'), 0, max / 2), digit('1', '9'), digits(0, max / 2)});
  Choices out;
  const auto add = [&](char first, char last, std::optional<Bound> l, std::optional<Bound> h) {
    if (first > last) return;
    if (auto rest = fraction_between(l, h, 0, max))
      out.push_back(Regex::concat({digit(first, last), *std::move(rest)}));
  };
  const char first = low ? low->next() : '0';
  const char last = high ? high->next() : '9';
  if (low && high && first == last) {
    add(first, last, low->rest(), high->rest());
  } else {
    if (low && first <= last) add(first, first, low->rest(), std::nullopt);
    add(static_cast<char>(first + (low ? 1 : 0)), static_cast<char>(last - (high ? 1 : 0)),
        std::nullopt, std::nullopt);
    if (high && first <= last) add(last, last, std::nullopt, high->rest());
  }
  auto found = any_of(std::move(out));
  // Here `high` has digits left: to end is to be below it.
  if (min == 0 && !low) return found ? optional_part(*std::move(found)) : Regex{};
  return found;
}

/// A number without sign: its whole part, then what may stand behind the point.
void add_fractions(Choices& out, std::optional<Regex> whole, std::optional<Bound> low,
                   std::optional<Bound> high, std::size_t max) {
  if (!whole) return;
  const bool integer = (!low || (low->digits.empty() && !low->exclusive)) &&
                       (!high || !high->digits.empty() || !high->exclusive);
  std::optional<Regex> fraction;
  if (max > 0) fraction = fraction_between(low, high, 1, max);
  if (fraction) fraction = Regex::concat({Regex::set(CodeSet::one('.')), *std::move(fraction)});
  if (!fraction && !integer) return;
  if (!fraction) return out.push_back(*std::move(whole));
  out.push_back(Regex::concat(
      {*std::move(whole), integer ? optional_part(*std::move(fraction)) : *std::move(fraction)}));
}

/// Texts of the numbers without sign in a range that has no negative ones.
std::optional<Regex> magnitude_text(NumberRange range) {
  if (!range.min) range.at_least(Decimal(), false);
  const Decimal low = *range.min;
  const auto size = std::max(low.whole().size(), range.max ? range.max->whole().size() : 0);
  const bool exclusive = range.min_exclusive || range.max_exclusive;
  const std::size_t places =
      std::max(low.fraction().size(), range.max ? range.max->fraction().size() : 0);
  std::size_t max = std::max(kFractionDigitsMax, places + 1);
  if (exclusive) max = size < kExactDigits ? kExactDigits - size : 0;
  // Beside a bound that no double is, what a double makes of a fraction may lie beyond it.
  if (size > kExactDigits) max = 0;
  const Bound low_bound{low.fraction(), range.min_exclusive};
  Choices out;
  if (!range.max) {
    add_fractions(out, Regex::text(low.whole()), low_bound, std::nullopt, max);
    add_fractions(out, whole_between(low.floor().plus_one(), std::nullopt), {}, {}, max);
    return any_of(std::move(out));
  }
  const Decimal& high = *range.max;
  const Bound high_bound{high.fraction(), range.max_exclusive};
  if (low.whole() == high.whole()) {
    add_fractions(out, Regex::text(low.whole()), low_bound, high_bound, max);
    return any_of(std::move(out));
  }
  add_fractions(out, Regex::text(low.whole()), low_bound, std::nullopt, max);
  add_fractions(out, whole_between(low.floor().plus_one(), high.floor().minus_one()), {}, {}, max);
  add_fractions(out, Regex::text(high.whole()), std::nullopt, high_bound, max);
  return any_of(std::move(out));
}

/// The range's negative numbers without their sign, if it has any: what is above zero in the
/// mirrored range.
std::optional<NumberRange> mirrored(const NumberRange& range) {
  NumberRange out;
  if (range.min) out.at_most(range.min->negated(), range.min_exclusive);
  if (range.max) out.at_least(range.max->negated(), range.max_exclusive);
  if (!out.min || *out.min < Decimal()) {
    out.min = Decimal();
    out.min_exclusive = true;
  }
  if (out.max && *out.max < *out.min) return std::nullopt;
  return out;
}

Regex minus(Regex text) { return Regex::concat({Regex::set(CodeSet::one('-')), std::move(text)}); }

Regex sign() { return optional_part(Regex::set(CodeSet::one('-'))); }

Regex any_whole() { return *whole_between(Decimal(), std::nullopt); }

Regex exponent() {
  return optional_part(
      Regex::concat({Regex::set(CodeSet({{'e', 'e'}, {'E', 'E'}})),
                     optional_part(Regex::set(CodeSet({{'+', '+'}, {'-', '-'}}))), digits(1, 2)}));
}

}  // namespace

void NumberRange::at_least(const Decimal& bound, bool exclusive) {
  if (min && (*min > bound || (*min == bound && min_exclusive))) return;
  min = bound;
  min_exclusive = exclusive;
}

void NumberRange::at_most(const Decimal& bound, bool exclusive) {
  if (max && (*max < bound || (*max == bound && max_exclusive))) return;
  max = bound;
  max_exclusive = exclusive;
}

bool NumberRange::has(const Decimal& value) const {
  return (!min || (min_exclusive ? value > *min : value >= *min)) &&
         (!max || (max_exclusive ? value < *max : value <= *max));
}

bool NumberRange::disjoint(const NumberRange& other) const {
  NumberRange both = *this;
  if (other.min) both.at_least(*other.min, other.min_exclusive);
  if (other.max) both.at_most(*other.max, other.max_exclusive);
  return both.min && both.max &&
         (*both.max < *both.min ||
          (*both.max == *both.min && (both.min_exclusive || both.max_exclusive)));
}

std::optional<Regex> integer_text(const NumberRange& range) {
  if (!range.min && !range.max) return Regex::concat({sign(), any_whole()});
  std::optional<Decimal> low, high;
  if (range.min) {
    low = range.min->ceiling();
    if (range.min_exclusive && *low == *range.min) low = low->plus_one();
  }
  if (range.max) {
    high = range.max->floor();
    if (range.max_exclusive && *high == *range.max) high = high->minus_one();
  }
  const Decimal zero;
  Choices out;
  if (!low || *low < zero) {
    const Decimal nearest = !high || *high >= zero ? Decimal(1) : high->negated();
    std::optional<Decimal> farthest;
    if (low) farthest = low->negated();
    if (auto text = whole_between(nearest, farthest)) out.push_back(minus(*std::move(text)));
  }
  if (!high || *high >= zero) {
    if (auto text = whole_between(low ? std::max(*low, zero) : zero, high))
      out.push_back(*std::move(text));
  }
  return any_of(std::move(out));
}

std::optional<Regex> number_text(const NumberRange& range) {
  const Regex plain = Regex::concat(
      {any_whole(),
       optional_part(Regex::concat({Regex::set(CodeSet::one('.')), digits(1, kFractionDigitsMax)})),
       exponent()});
  if (!range.min && !range.max) return Regex::concat({sign(), plain});
  const Decimal zero;
  if (!range.max && *range.min == zero && !range.min_exclusive) return plain;
  Choices out;
  if (!range.min || *range.min < zero) {
    const auto mirror = mirrored(range);
    if (mirror) {
      if (auto text = magnitude_text(*mirror)) out.push_back(minus(*std::move(text)));
    }
  }
  if (!range.max || *range.max >= zero) {
    NumberRange upper = range;
    if (!upper.min || *upper.min < zero) {
      upper.min = zero;
      upper.min_exclusive = false;
    }
    if (!(upper.max && *upper.max < *upper.min)) {
      if (auto text = magnitude_text(upper)) out.push_back(*std::move(text));
    }
  }
  return any_of(std::move(out));
}

Regex fraction_text() {
  // So few digits that no double takes it for an integer.
  return Regex::concat({sign(), *whole_between(Decimal(), Decimal(999'999)),
                        Regex::set(CodeSet::one('.')), digits(0, 4), digit('1', '9'),
                        digits(0, 4)});
}

}  // namespace troupe
