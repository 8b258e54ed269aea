#include "actors/gateway/history_json.h"

#include <chrono>

#include "actors/gateway/json_writer.h"

namespace troupe {

std::string history_json(const std::vector<RequestHistory::Slot>& slots) {
  using Slot = RequestHistory::Slot;
  constexpr auto kSlotS =
      std::chrono::duration_cast<std::chrono::seconds>(RequestHistory::kSlot).count();
  JsonWriter json;
  json.begin_object().member("slot_s", kSlotS);
  const auto list = [&](std::string_view name, auto write) {
    json.key(name).begin_array();
    for (const Slot& slot : slots) write(slot);
    json.end_array();
  };
  const auto rate = [&](std::uint64_t count) {
    json.value(static_cast<float>(count) / static_cast<float>(kSlotS));
  };
  list("prompt_tokens_per_s", [&](const Slot& slot) { rate(slot.prompt_tokens); });
  list("generation_tokens_per_s", [&](const Slot& slot) { rate(slot.generation_tokens); });
  list("running", [&](const Slot& slot) { json.value(slot.running); });
  list("waiting", [&](const Slot& slot) { json.value(slot.waiting); });
  const auto quantile = [&](const Slot& slot, double Quantiles::*which) {
    if (slot.first_token_ms)
      json.value(static_cast<float>(*slot.first_token_ms.*which));
    else
      json.null();
  };
  json.key("ttft_ms").begin_object();
  list("p50", [&](const Slot& slot) { quantile(slot, &Quantiles::p50); });
  list("p99", [&](const Slot& slot) { quantile(slot, &Quantiles::p99); });
  json.end_object().end_object();
  return std::move(json).text();
}

}  // namespace troupe
