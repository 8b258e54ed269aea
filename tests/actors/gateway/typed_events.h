#pragma once

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace troupe::testing {

/// A server-sent event with a type, as Responses and Messages have them.
struct TypedEvent {
  std::string id, type;
  nlohmann::json data;
};

inline std::vector<TypedEvent> typed_events(const std::string& body) {
  std::vector<TypedEvent> events;
  TypedEvent event;
  for (std::size_t at = 0; at < body.size();) {
    const std::size_t end = body.find('\n', at);
    REQUIRE(end != body.npos);
    const std::string line = body.substr(at, end - at);
    at = end + 1;
    if (line.starts_with("id: ")) event.id = line.substr(4);
    if (line.starts_with("event: ")) event.type = line.substr(7);
    if (line.starts_with("data: ")) event.data = nlohmann::json::parse(line.substr(6));
    if (line.empty()) events.push_back(std::exchange(event, {}));
  }
  return events;
}

/// The types, of deltas in a row the first.
inline std::vector<std::string> types_of(const std::vector<TypedEvent>& events) {
  std::vector<std::string> types;
  for (const TypedEvent& event : events)
    if (types.empty() || types.back() != event.type || !event.type.ends_with("delta"))
      types.push_back(event.type);
  return types;
}

}  // namespace troupe::testing
