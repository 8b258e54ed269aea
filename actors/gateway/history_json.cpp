#include "actors/gateway/history_json.h"

#include <chrono>

#include "actors/gateway/json_writer.h"

namespace troupe {

namespace {

using Slot = RequestHistory::Slot;

constexpr auto kSlotS =
    std::chrono::duration_cast<std::chrono::seconds>(RequestHistory::kSlot).count();

}  // namespace

std::string history_json(const History& history) {
  JsonWriter json;
  json.begin_object().member("slot_s", kSlotS);
  const auto list = [&](std::string_view name, auto write) {
    json.key(name).begin_array();
    for (const Slot& slot : history.requests) write(slot);
    json.end_array();
  };
  const auto rate = [&](std::uint64_t count) {
    json.value(static_cast<float>(count) / static_cast<float>(kSlotS));
  };
  list("prompt_tokens_per_s", [&](const Slot& slot) { rate(slot.prompt_tokens); });
  list("generation_tokens_per_s", [&](const Slot& slot) { rate(slot.generation_tokens); });
  list("running", [&](const Slot& slot) { json.value(slot.running); });
  list("waiting", [&](const Slot& slot) { json.value(slot.waiting); });
  const auto quantiles = [&](std::string_view name, std::optional<Quantiles> Slot::*which) {
    const auto quantile = [&](const Slot& slot, double Quantiles::*share) {
      if (slot.*which)
        json.value(static_cast<float>((*(slot.*which)).*share));
      else
        json.null();
    };
    json.key(name).begin_object();
    list("p50", [&](const Slot& slot) { quantile(slot, &Quantiles::p50); });
    list("p99", [&](const Slot& slot) { quantile(slot, &Quantiles::p99); });
    json.end_object();
  };
  quantiles("ttft_ms", &Slot::first_token_ms);
  quantiles("inter_token_ms", &Slot::inter_token_ms);
  json.key("utilization").begin_object();
  for (const DeviceLoads::Load& load : history.devices) {
    json.key(to_string(load.device)).begin_array();
    for (const std::uint8_t percent : load.percent)
      if (percent == DeviceLoads::kUnknown)
        json.null();
      else
        json.value(static_cast<float>(percent) / 100);
    json.end_array();
  }
  json.end_object().end_object();
  return std::move(json).text();
}

}  // namespace troupe
