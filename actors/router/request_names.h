#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/request_name.h"

namespace troupe {

/// Which requests have which name. A part of the Router.
class RequestNames {
 public:
  /// The prompts that came together.
  struct Group {
    std::string id;
    std::uint64_t owner = 0;
    std::string key;
    Digest body;
    std::vector<std::uint64_t> requests;  ///< by index; 0: none
  };

  void add(const RequestName& name, std::uint64_t request);
  void remove(const RequestName& name, std::uint64_t request);
  /// It failed: who asks again with its key gets another one.
  void release_key(const RequestName& name);

  /// Null: nobody has it, or another owner.
  const Group* find(const std::string& id, std::uint64_t owner) const;
  /// Null: it was not used, or its request failed or is forgotten.
  const Group* find_key(std::uint64_t owner, const std::string& key) const;

 private:
  std::map<std::string, Group> groups_;                            // by id
  std::map<std::pair<std::uint64_t, std::string>, std::string> keys_;  // ids, by owner and key
};

}  // namespace troupe
