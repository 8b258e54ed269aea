#include "tools/troupe/plan/measured.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "model/json_reader.h"
#include "tools/troupe/plan/device_kinds.h"

namespace troupe {
namespace {

using nlohmann::json;

/// No machine is faster, and none that computes models slower.
constexpr double kBytesMin = 1e6, kBytesMax = 1e15, kOperationsMin = 1e8, kOperationsMax = 1e18;
constexpr double kSecondsMax = 1, kPositionsMax = 1e6;
constexpr std::size_t kProductsMax = 32, kPointsMax = 64;

constexpr std::pair<std::string_view, kernels::Codes> kCodes[] = {
    {"f32", kernels::Codes::kF32},   {"bf16", kernels::Codes::kBf16}, {"fp8", kernels::Codes::kFp8},
    {"int4", kernels::Codes::kInt4}, {"fp4", kernels::Codes::kFp4},
};

constexpr std::pair<const char*, AttentionSpeed DeviceSpeed::*> kAttention[] = {
    {"attention_one", &DeviceSpeed::attention_one},
    {"attention_batch", &DeviceSpeed::attention_batch},
    {"attention_prompt", &DeviceSpeed::attention_prompt},
};

Status read_attention(const JsonReader& object, const char* name, const std::string& where,
                      AttentionSpeed& speed) {
  const json* value = object.find(name);
  if (!value) return {};
  JsonReader reader(*value, where + ", " + name);
  if (!reader.ok()) return reader.status();
  speed.rate = reader.number("rate", kOperationsMin, kOperationsMax);
  speed.more_positions = reader.number_or("more_positions", 0, 0, kPositionsMax);
  return reader.status();
}

Result<ProductSpeed> read_product(const json& value, const std::string& where) {
  JsonReader reader(value, where);
  if (!reader.ok()) return reader.status().error();
  ProductSpeed product;
  const std::string codes = reader.string("codes");
  const auto found = std::find_if(std::begin(kCodes), std::end(kCodes),
                                  [&](const auto& c) { return c.first == codes; });
  if (found == std::end(kCodes))
    reader.fail("codes", "one of f32, bf16, fp8, int4, fp4");
  else
    product.kind.codes = found->second;
  product.kind.full_precision = reader.boolean_or("full_precision", false);
  const json* points = reader.find("points");
  if (!points || !points->is_array() || points->empty() || points->size() > kPointsMax) {
    reader.fail("points", "a list of {\"rows\", \"element_s\"}");
    return reader.status().error();
  }
  for (const json& p : *points) {
    JsonReader point(p, where + ", points");
    ProductSpeed::Point read;
    read.rows = point.number("rows", 1, 1e6);
    read.element_s = point.number("element_s", 1e-18, kSecondsMax);
    if (!product.points.empty() && read.rows <= product.points.back().rows)
      point.fail("rows", "more than in the point before");
    if (!point.ok()) return point.status().error();
    product.points.push_back(read);
  }
  if (!reader.ok()) return reader.status().error();
  return product;
}

Status read_ceilings(JsonReader& reader, const std::string& where, Ceilings& c) {
  c.memory = reader.number("memory_bandwidth", kBytesMin, kBytesMax);
  c.network = reader.number_or("network", 0, kBytesMin, kBytesMax);
  c.link = reader.number_or("link", 0, kBytesMin, kBytesMax);
  const json* compute = reader.find("compute");
  if (!compute) reader.fail("compute", "an object with bf16, fma and fp8");
  if (!reader.ok()) return reader.status();
  JsonReader rates(*compute, where + ", compute");
  if (!rates.ok()) return rates.status();
  c.bf16 = rates.number("bf16", kOperationsMin, kOperationsMax);
  c.fma = rates.number_or("fma", c.bf16, kOperationsMin, kOperationsMax);
  c.fp8 = rates.number_or("fp8", 0, kOperationsMin, kOperationsMax);
  return rates.status();
}

}  // namespace

Result<MeasuredDevice> parse_measured(const std::string& text, const std::string& where) {
  const auto parsed = parse_json(text, where);
  if (!parsed.ok()) return parsed.error();
  const json* object = &*parsed;
  if (object->is_object() && object->contains("measured")) object = &(*object)["measured"];
  JsonReader reader(*object, where);
  if (!reader.ok()) return reader.status().error();
  MeasuredDevice measured;
  DeviceSpeed& m = measured.device_speed;
  if (Status s = read_ceilings(reader, where, m.ceilings); !s) return s.error();
  measured.device = reader.string_or("device", "cpu");
  if (measured.device != "cpu" && !find_device_kind(measured.device))
    reader.fail("device", "\"cpu\" or the name of a device, such as \"" +
                              nearest_device_kind(measured.device) + "\"");
  for (const auto& [name, part] : kAttention)
    if (Status s = read_attention(reader, name, where, m.*part); !s) return s.error();
  m.efficiency.call_s = reader.number_or("call_s", m.efficiency.call_s, 0, kSecondsMax);
  m.efficiency.matrix_s = reader.number_or("matrix_s", 0, 0, kSecondsMax);
  m.efficiency.hop_s = reader.number_or("hop_s", m.efficiency.hop_s, 0, kSecondsMax);
  if (const json* products = reader.find("products")) {
    if (!products->is_array() || products->size() > kProductsMax)
      reader.fail("products", "a list of measured products");
    else
      for (const json& p : *products) {
        auto product = read_product(p, where + ", products");
        if (!product.ok()) return product.error();
        m.products.push_back(std::move(*product));
      }
  }
  if (!reader.ok()) return reader.status().error();
  return measured;
}

nlohmann::ordered_json to_json(const MeasuredDevice& measured) {
  const DeviceSpeed& m = measured.device_speed;
  nlohmann::ordered_json json = {{"device", measured.device},
                                 {"memory_bandwidth", m.ceilings.memory},
                                 {"compute", {{"bf16", m.ceilings.bf16}, {"fma", m.ceilings.fma}}}};
  if (m.ceilings.fp8 > 0) json["compute"]["fp8"] = m.ceilings.fp8;
  if (m.ceilings.network > 0) json["network"] = m.ceilings.network;
  if (m.ceilings.link > 0) json["link"] = m.ceilings.link;
  for (const auto& [name, part] : kAttention)
    if ((m.*part).rate > 0)
      json[name] = {{"rate", (m.*part).rate}, {"more_positions", (m.*part).more_positions}};
  json["call_s"] = m.efficiency.call_s;
  json["matrix_s"] = m.efficiency.matrix_s;
  json["hop_s"] = m.efficiency.hop_s;
  json["products"] = nlohmann::ordered_json::array();
  for (const ProductSpeed& product : m.products) {
    nlohmann::ordered_json points = nlohmann::ordered_json::array();
    for (const auto& p : product.points)
      points.push_back({{"rows", p.rows}, {"element_s", p.element_s}});
    const auto name = std::find_if(std::begin(kCodes), std::end(kCodes),
                                   [&](const auto& c) { return c.second == product.kind.codes; });
    json["products"].push_back({{"codes", name == std::end(kCodes) ? "bf16" : name->first},
                                {"full_precision", product.kind.full_precision},
                                {"points", points}});
  }
  return json;
}

}  // namespace troupe
