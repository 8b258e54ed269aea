#include "actors/supervisor/experts_text.h"

#include <charconv>
#include <cmath>
#include <string_view>

namespace troupe {
namespace {

void append(std::string& out, std::int64_t number) {
  char digits[24];
  out.append(digits, std::to_chars(digits, digits + sizeof digits, number).ptr);
}

void append_layer(std::string& out, std::int32_t layer, std::string_view list) {
  if (out.size() > 1) out += ',';
  out += "{\"layer\":";
  append(out, layer);
  out += ",\"";
  out += list;
  out += "\":[";
}

}  // namespace

std::string placement_text(const std::vector<LayerExperts>& layers) {
  std::map<DeviceRef, std::string> names;  // written once, not once a copy
  std::string out = "[";
  for (const auto& layer : layers) {
    append_layer(out, layer.layer, "slots");
    for (std::size_t i = 0; i < layer.slots.size(); ++i) {
      const ExpertSlot& slot = layer.slots[i];
      std::string& name = names[slot.device];
      if (name.empty()) name = to_string(slot.device);
      out += i == 0 ? "{\"expert\":" : ",{\"expert\":";
      append(out, slot.expert);
      out += ",\"device\":\"";
      out += name;
      out += "\"}";
    }
    out += "]}";
  }
  return out + ']';
}

std::string load_text(const std::map<std::int32_t, std::vector<float>>& tokens) {
  std::string out = "[";
  for (const auto& [layer, counts] : tokens) {
    append_layer(out, layer, "tokens");
    for (std::size_t i = 0; i < counts.size(); ++i) {
      if (i > 0) out += ',';
      append(out, std::isfinite(counts[i]) ? std::llround(counts[i]) : 0);
    }
    out += "]}";
  }
  return out + ']';
}

}  // namespace troupe
