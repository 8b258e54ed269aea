// How fast text becomes ids: tokenizer_bench.py runs it beside Hugging Face's tokenizers.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "model/tokenizer/tokenizer.h"

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::vector<std::string> read_documents(const char* path) {
  std::ifstream file(path, std::ios::binary);
  const std::string all((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::vector<std::string> documents;
  for (std::size_t begin = 0; begin < all.size();) {
    const std::size_t end = std::min(all.find('\0', begin), all.size());
    documents.push_back(all.substr(begin, end - begin));
    begin = end + 1;
  }
  return documents;
}

}  // namespace

/// tokenizer_bench MODEL FILE: encodes the file's documents, which zero bytes divide. Prints the
/// seconds to load, the seconds to encode, the number of ids and their digest (FNV-1a).
int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: tokenizer_bench MODEL FILE\n");
    return 2;
  }
  const auto load_start = Clock::now();
  const auto tokenizer = troupe::Tokenizer::load(argv[1]);
  const double load_seconds = seconds_since(load_start);
  if (!tokenizer.ok()) {
    std::fprintf(stderr, "%s\n", tokenizer.error().message.c_str());
    return 1;
  }
  const std::vector<std::string> documents = read_documents(argv[2]);
  std::vector<std::vector<troupe::TokenId>> ids;
  const auto start = Clock::now();
  for (const std::string& document : documents) {
    auto encoded = (*tokenizer)->encode(document, false);
    if (!encoded.ok()) return 1;
    ids.push_back(std::move(*encoded));
  }
  const double seconds = seconds_since(start);
  std::size_t count = 0;
  std::uint32_t digest = 2166136261u;
  for (const auto& list : ids) {
    count += list.size();
    for (const troupe::TokenId id : list) {
      digest = (digest ^ static_cast<std::uint32_t>(id)) * 16777619u;
    }
  }
  std::printf("%.6f %.6f %zu %u\n", load_seconds, seconds, count, digest);
  return 0;
}
