#include "actors/gateway/pooled_answer.h"

#include <openssl/evp.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <utility>

#include "actors/gateway/answer.h"
#include "runtime/limits.h"

namespace troupe {
namespace {

std::string to_base64(std::span<const float> values) {
  const auto bytes = std::as_bytes(values);
  std::string text(4 * ((bytes.size() + 2) / 3) + 1, '\0');
  const int length = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                                     reinterpret_cast<const unsigned char*>(bytes.data()),
                                     static_cast<int>(bytes.size()));
  text.resize(static_cast<std::size_t>(length));
  return text;
}

}  // namespace

PooledAnswer::PooledAnswer(const ApiRequest& request)
    : form_(*request.pooled),
      each_token_(request.prompts.front().pooling == Pooling::kAll),
      items_(request.prompts.size()) {}

void PooledAnswer::add(std::size_t input, std::size_t tokens, std::vector<float> hidden) {
  const std::size_t rows = each_token_ ? tokens : 1;
  if (rows > 0 && hidden.size() % rows == 0) items_[input] = {std::move(hidden), rows};
}

/// Summed in the order of the numbers, in float64: the same bits wherever it is done.
void PooledAnswer::normalize(Item& item) const {
  const std::size_t width = item.hidden.size() / item.rows;
  for (auto row = item.hidden.begin(); row != item.hidden.end();
       row += static_cast<std::ptrdiff_t>(width)) {
    const auto end = row + static_cast<std::ptrdiff_t>(width);
    double sum = 0;
    for (auto value = row; value != end; ++value) sum += double{*value} * double{*value};
    const double length = std::max(std::sqrt(sum), 1e-12);
    std::transform(row, end, row, [&](float v) { return static_cast<float>(double{v} / length); });
  }
}

void PooledAnswer::begin_item(JsonWriter& json) {
  Item& item = items_[next_];
  if (form_.normalize) normalize(item);
  json.begin_object().member("index", next_);
  json.member("object", form_.embedding ? "embedding" : "pooling");
  json.key(form_.embedding ? "embedding" : "data");
  if (form_.base64) {
    json.value(to_base64(item.hidden));
    row_ = item.rows;
  } else if (each_token_) {
    json.begin_array();
  }
}

bool PooledAnswer::write(JsonWriter& json, std::size_t bytes_max) {
  for (; next_ < items_.size(); ++next_, row_ = 0) {
    Item& item = items_[next_];
    if (item.hidden.empty()) continue;
    const std::size_t width = item.hidden.size() / item.rows;
    for (bool begins = row_ == 0; begins || row_ < item.rows; begins = false) {
      if (json.text().size() >= bytes_max) return false;
      if (begins) begin_item(json);
      if (row_ == item.rows) break;
      json.begin_array();
      for (const float value : std::span(item.hidden).subspan(row_ * width, width))
        json.value(value);
      json.end_array();
      ++row_;
    }
    if (each_token_ && !form_.base64) json.end_array();
    json.end_object();
    item = {};
  }
  return true;
}

bool Answer::write_pooled(std::string& out) {
  JsonWriter& json = writing_.json;
  if (!std::exchange(writing_.begun, true)) {
    if (!states_.empty()) writing_.status = status();
    begin(json, "list");
    json.key("data").begin_array();
  }
  const bool last = pooled_->write(json, limits::kHttpPieceBytes);
  if (last) {
    json.end_array();
    write_usage(json);
    write_end(json);
  }
  out += json.take();
  return last;
}

}  // namespace troupe
