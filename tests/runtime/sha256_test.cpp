#include "runtime/sha256.h"

#include <doctest/doctest.h>

#include <string>
#include <string_view>

using namespace troupe;

namespace {

std::string hex(const Sha256Digest& digest) {
  std::string text;
  for (const std::byte byte : digest)
    for (const int shift : {4, 0})
      text += "0123456789abcdef"[(std::to_integer<int>(byte) >> shift) & 15];
  return text;
}

}  // namespace

/// FIPS 180-2, appendix B.
TEST_CASE("SHA-256 of known bytes, one after the other and in pieces") {
  Sha256 hash;
  const auto add = [&](std::string_view text) { hash.add(std::as_bytes(std::span(text))); };
  add("abc");
  CHECK(hex(hash.finish()) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  add("abcdbcdecdefdefgefghfghighij");
  add("hijkijkljklmklmnlmnomnopnopq");
  CHECK(hex(hash.finish()) == "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK(hex(hash.finish()) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}
