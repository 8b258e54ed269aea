#include "model/grammar/left_recursion.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace troupe::grammar {
namespace {

/// The callees that each callee may begin with, once for each call.
class Beginnings {
 public:
  explicit Beginnings(const Automaton& a) : seen_(a.states.size(), kNobody) {
    for (std::uint32_t c = 0; c < a.callees.size(); ++c) {
      reach(a.callees[c].start, c);
      for (; next_ < states_.size(); ++next_) visit(a, states_[next_], c);
      ends_.push_back(called_.size());
    }
  }
  std::size_t begin(std::uint32_t callee) const { return callee == 0 ? 0 : ends_[callee - 1]; }
  std::size_t end(std::uint32_t callee) const { return ends_[callee]; }
  std::uint32_t called(std::size_t i) const { return called_[i]; }

 private:
  static constexpr std::uint32_t kNobody = 0xFFFFFFFF;

  void visit(const Automaton& a, std::uint32_t state, std::uint32_t callee) {
    for (const std::uint32_t to : a.empties_of(state)) reach(to, callee);
    for (const Automaton::CallEdge& call : a.calls_of(state)) {
      called_.push_back(call.callee);
      if (a.callees[call.callee].min == 0) reach(call.to, callee);
    }
  }
  void reach(std::uint32_t state, std::uint32_t callee) {
    if (std::exchange(seen_[state], callee) != callee) states_.push_back(state);
  }

  std::vector<std::uint32_t> seen_;  // [states]: by which callee, last
  std::vector<std::uint32_t> states_;
  std::size_t next_ = 0;
  std::vector<std::uint32_t> called_;
  std::vector<std::size_t> ends_;  // [callees]: in called_
};

/// Tarjan's strongly connected components.
class Circles {
 public:
  explicit Circles(const Beginnings& beginnings, std::size_t callees)
      : beginnings_(beginnings), order_(callees), low_(callees), circle_(callees) {
    for (std::uint32_t c = 0; c < callees; ++c) {
      if (order_[c] == 0) find_from(c);
    }
  }

  std::size_t widest() const {
    std::vector<std::size_t> calls(count_ + 1);
    std::size_t widest = 0;
    for (std::uint32_t c = 0; c < circle_.size(); ++c) {
      for (std::size_t i = beginnings_.begin(c); i < beginnings_.end(c); ++i) {
        if (circle_[beginnings_.called(i)] == circle_[c])
          widest = std::max(widest, ++calls[circle_[c]]);
      }
    }
    return widest;
  }

 private:
  void find_from(std::uint32_t root) {
    open(root);
    while (!frames_.empty()) {
      const std::uint32_t c = frames_.back().first;
      if (frames_.back().second < beginnings_.end(c)) {
        const std::uint32_t called = beginnings_.called(frames_.back().second++);
        if (order_[called] == 0) {
          open(called);
        } else if (circle_[called] == 0) {
          low_[c] = std::min(low_[c], order_[called]);
        }
        continue;
      }
      frames_.pop_back();
      if (!frames_.empty()) {
        std::uint32_t& low = low_[frames_.back().first];
        low = std::min(low, low_[c]);
      }
      if (low_[c] == order_[c]) close(c);
    }
  }
  void open(std::uint32_t callee) {
    order_[callee] = low_[callee] = ++visits_;
    open_.push_back(callee);
    frames_.emplace_back(callee, beginnings_.begin(callee));
  }
  void close(std::uint32_t first) {
    ++count_;
    while (circle_[first] == 0) {
      circle_[open_.back()] = count_;
      open_.pop_back();
    }
  }

  const Beginnings& beginnings_;
  std::vector<std::uint32_t> order_, low_;  // [callees]; 0: not visited
  std::vector<std::uint32_t> circle_;       // [callees]; 0: not known yet
  std::vector<std::uint32_t> open_;
  std::vector<std::pair<std::uint32_t, std::size_t>> frames_;  // a callee, its next call
  std::uint32_t visits_ = 0, count_ = 0;
};

}  // namespace

std::size_t widest_left_recursion(const Automaton& automaton) {
  return Circles(Beginnings(automaton), automaton.callees.size()).widest();
}

}  // namespace troupe::grammar
