#include "actors/standby/standby_door.h"

#include <nlohmann/json.hpp>

namespace troupe {

std::string StandbyDoor::status_json() const {
  using Json = nlohmann::ordered_json;
  const Json none = Json::array();
  return Json{
      {"cluster",
       {{"state", "standby"}, {"version", version_}, {"message", message_()}, {"head", head_}}},
      {"nodes", none},
      {"replicas", none},
      {"events", none}}
      .dump();
}

}  // namespace troupe
