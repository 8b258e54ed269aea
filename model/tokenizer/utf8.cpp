#include "model/tokenizer/utf8.h"

#include <cassert>

namespace troupe::utf8 {
namespace {

unsigned char byte_at(std::string_view text, std::size_t i) {
  return static_cast<unsigned char>(text[i]);
}

/// Length and bounds of the second byte for a lead byte (Unicode Standard, table 3-7).
struct Lead {
  std::size_t length = 0;  // 0: no lead byte
  unsigned char second_min = 0x80;
  unsigned char second_max = 0xBF;
};

Lead lead_of(unsigned char b) {
  if (b >= 0xC2 && b <= 0xDF) return {2};
  if (b == 0xE0) return {3, 0xA0, 0xBF};
  if (b == 0xED) return {3, 0x80, 0x9F};  // no surrogates
  if (b >= 0xE1 && b <= 0xEF) return {3};
  if (b == 0xF0) return {4, 0x90, 0xBF};
  if (b >= 0xF1 && b <= 0xF3) return {4};
  if (b == 0xF4) return {4, 0x80, 0x8F};  // up to U+10FFFF
  return {};
}

}  // namespace

Step next(std::string_view text) {
  assert(!text.empty());
  if (byte_at(text, 0) < 0x80) return {Step::Kind::kCharacter, 1};
  const Lead lead = lead_of(byte_at(text, 0));
  if (lead.length == 0) return {Step::Kind::kInvalid, 1};
  for (std::size_t i = 1; i < lead.length; ++i) {
    if (i == text.size()) return {Step::Kind::kIncomplete, i};
    const unsigned char min = i == 1 ? lead.second_min : 0x80;
    const unsigned char max = i == 1 ? lead.second_max : 0xBF;
    if (byte_at(text, i) < min || byte_at(text, i) > max) return {Step::Kind::kInvalid, i};
  }
  return {Step::Kind::kCharacter, lead.length};
}

std::size_t append_complete(std::string& out, std::string_view bytes) {
  std::size_t position = 0;
  while (position < bytes.size()) {
    const Step step = next(bytes.substr(position));
    if (step.kind == Step::Kind::kIncomplete) break;
    if (step.kind == Step::Kind::kInvalid) {
      out += kReplacement;
    } else {
      out += bytes.substr(position, step.length);
    }
    position += step.length;
  }
  return position;
}

bool valid(std::string_view text) {
  while (!text.empty()) {
    const Step step = next(text);
    if (step.kind != Step::Kind::kCharacter) return false;
    text.remove_prefix(step.length);
  }
  return true;
}

std::string repair(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  if (append_complete(out, bytes) < bytes.size()) out += kReplacement;
  return out;
}

void append(std::string& out, char32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | (c >> 6));
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | (c >> 12));
    out += static_cast<char>(0x80 | ((c >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | (c >> 18));
    out += static_cast<char>(0x80 | ((c >> 12) & 0x3F));
    out += static_cast<char>(0x80 | ((c >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  }
}

char32_t decode(std::string_view text, std::size_t& position) {
  assert(position < text.size());
  const unsigned char first = byte_at(text, position);
  const std::size_t length = first < 0x80 ? 1 : lead_of(first).length;
  assert(length > 0 && position + length <= text.size());
  char32_t c = first;
  if (length > 1) c = first & (0xFF >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) c = (c << 6) | (byte_at(text, position + i) & 0x3F);
  position += length;
  return c;
}

}  // namespace troupe::utf8
