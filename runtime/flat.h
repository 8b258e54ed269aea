#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace troupe {

/// A sorted vector, for few keys that come and go all the time: once warm it allocates nothing.
/// References and iterators are good until the next insertion or erasure.
template <class Key>
class FlatSet {
 public:
  auto begin() const { return keys_.begin(); }
  auto end() const { return keys_.end(); }
  std::size_t size() const { return keys_.size(); }
  bool empty() const { return keys_.empty(); }
  bool contains(const Key& key) const {
    return std::binary_search(keys_.begin(), keys_.end(), key);
  }
  /// False if it was here.
  bool insert(const Key& key) {
    const auto it = std::lower_bound(keys_.begin(), keys_.end(), key);
    if (it != keys_.end() && *it == key) return false;
    keys_.insert(it, key);
    return true;
  }
  /// False if it was not here.
  bool erase(const Key& key) {
    const auto it = std::lower_bound(keys_.begin(), keys_.end(), key);
    if (it == keys_.end() || *it != key) return false;
    keys_.erase(it);
    return true;
  }

 private:
  std::vector<Key> keys_;
};

/// The same with a value for each key.
template <class Key, class Value>
class FlatMap {
 public:
  using Entries = std::vector<std::pair<Key, Value>>;
  using iterator = typename Entries::iterator;
  using const_iterator = typename Entries::const_iterator;

  iterator begin() { return entries_.begin(); }
  iterator end() { return entries_.end(); }
  const_iterator begin() const { return entries_.begin(); }
  const_iterator end() const { return entries_.end(); }
  std::size_t size() const { return entries_.size(); }
  bool empty() const { return entries_.empty(); }

  iterator find(const Key& key) {
    const auto it = place_of(key);
    return it != end() && it->first == key ? it : end();
  }
  const_iterator find(const Key& key) const { return const_cast<FlatMap&>(*this).find(key); }
  bool contains(const Key& key) const { return find(key) != end(); }
  Value& operator[](const Key& key) {
    auto it = place_of(key);
    if (it == end() || it->first != key) it = entries_.emplace(it, key, Value());
    return it->second;
  }
  void erase(iterator it) { entries_.erase(it); }

 private:
  iterator place_of(const Key& key) {
    return std::lower_bound(begin(), end(), key,
                            [](const auto& entry, const Key& k) { return entry.first < k; });
  }
  Entries entries_;
};

}  // namespace troupe
