#include "model/placement/expert_room.h"

#include <algorithm>

#include "model/placement/advice.h"
#include "model/placement/stages.h"

namespace troupe {
namespace {

constexpr std::size_t kMissingNamedMax = 8;

}  // namespace

std::vector<std::int32_t> expert_layers(const ModelCosts& model) {
  std::vector<std::int32_t> layers;
  for (std::size_t i = 0; i < model.layers.size() && model.num_experts > 0; ++i)
    if (model.layers[i].has_experts) layers.push_back(static_cast<std::int32_t>(i));
  return layers;
}

ExpertShares shares_of(const ModelCosts& model, std::int32_t redundant,
                       const std::map<DeviceRef, std::uint64_t>& room) {
  ShareInput input;
  input.layers = expert_layers(model).size();
  input.experts = static_cast<std::size_t>(model.num_experts);
  input.redundant = static_cast<std::size_t>(redundant);
  const std::uint64_t each = std::max<std::uint64_t>(1, model.expert_bytes);
  for (const auto& [device, bytes] : room) input.room.push_back(bytes / each);
  return expert_shares(input);
}

Error experts_lack_room(const ModelCosts& model, const EngineOptions& engine,
                        const std::map<DeviceRef, std::uint64_t>& room) {
  const ExpertShares shares = shares_of(model, engine.redundant_experts, room);
  const std::uint64_t all = expert_layers(model).size() * shares.copies;
  std::string missing =
      "all together lack " + bytes_text(saturating_mul(shares.lacking, model.expert_bytes));
  // Devices that lack the same share a clause.
  struct Alike {
    std::uint64_t lacking, experts;
    std::size_t devices;
    DeviceRef first;
  };
  std::vector<Alike> kinds;
  std::size_t d = 0, told = 0;
  for (const auto& [device, bytes] : room) {
    const std::uint64_t count = all / room.size() + (d++ < all % room.size() ? 1 : 0);
    const std::uint64_t need = saturating_mul(count, model.expert_bytes);
    if (need <= bytes) continue;
    const auto alike = std::ranges::find_if(
        kinds, [&](const Alike& k) { return k.lacking == need - bytes && k.experts == count; });
    if (alike == kinds.end())
      kinds.push_back({need - bytes, count, 1, device});
    else
      ++alike->devices;
  }
  for (const Alike& kind : kinds) {
    if (told++ >= kMissingNamedMax) continue;
    missing += "; ";
    missing += kind.devices == 1 ? to_string(kind.first)
                                 : "each of " + std::to_string(kind.devices) + " devices";
    missing += " lacks " + bytes_text(kind.lacking) + " for its " + std::to_string(kind.experts) +
               " experts of " + bytes_text(model.expert_bytes) + " each";
  }
  if (told > kMissingNamedMax)
    missing += "; and " + std::to_string(told - kMissingNamedMax) + " more kinds of devices";
  return resource_exhausted("The model's experts do not fit: " + missing + ". " +
                            advice_for_experts(engine));
}

}  // namespace troupe
