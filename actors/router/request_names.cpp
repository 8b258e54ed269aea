#include "actors/router/request_names.h"

#include <algorithm>

namespace troupe {

void RequestNames::add(const RequestName& name, std::uint64_t request) {
  Group& group = groups_[name.id];
  if (group.requests.empty())
    group = {name.id, name.owner, name.key, name.body, std::vector<std::uint64_t>(name.count)};
  if (name.index < group.requests.size()) group.requests[name.index] = request;
  if (!name.key.empty()) keys_.insert_or_assign({name.owner, name.key}, name.id);
}

void RequestNames::remove(const RequestName& name, std::uint64_t request) {
  const auto found = groups_.find(name.id);
  if (found == groups_.end()) return;
  std::ranges::replace(found->second.requests, request, std::uint64_t{0});
  if (std::ranges::any_of(found->second.requests, [](std::uint64_t r) { return r != 0; })) return;
  release_key(name);
  groups_.erase(found);
}

void RequestNames::release_key(const RequestName& name) {
  const auto key = keys_.find({name.owner, name.key});
  if (key != keys_.end() && key->second == name.id) keys_.erase(key);
}

const RequestNames::Group* RequestNames::find(const std::string& id, std::uint64_t owner) const {
  const auto found = groups_.find(id);
  return found == groups_.end() || found->second.owner != owner ? nullptr : &found->second;
}

const RequestNames::Group* RequestNames::find_key(std::uint64_t owner,
                                                  const std::string& key) const {
  const auto found = keys_.find({owner, key});
  return found == keys_.end() ? nullptr : find(found->second, owner);
}

}  // namespace troupe
