#include "tests/actors/head/journal_samples.h"

#include <doctest/doctest.h>

#include <cstring>

#include "runtime/xxh3.h"
#include "transport/journal_records.h"

namespace troupe::testing {
namespace {

std::string text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void put(std::string& out, const auto& value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

}  // namespace

std::shared_ptr<const PreparedRequest> prepared(std::uint64_t request) {
  PreparedRequest made;
  made.prompt.assign(3, static_cast<TokenId>(request));
  made.n = 2;
  made.max_tokens = 100;
  made.sampling.seed = made.seed.emplace(10 + request);
  made.sampling.top_logprobs = 1;
  made.stop = {"\n\n", "Gr\xC3\xBC\xC3\x9F"};
  made.stop_tokens = {1, 2};
  made.keep_special = {3};
  made.include_stop_str_in_output = true;
  made.skip_special_tokens = false;
  made.timeout = std::chrono::milliseconds(61'500);
  made.streams = false;
  made.name = std::make_shared<const RequestName>(
      RequestName{"cmpl-" + std::to_string(request), 0, 1, ~0ull,
                  "key " + std::to_string(request), {7, request}, "{\"chat\":true}"});
  return std::make_shared<const PreparedRequest>(std::move(made));
}

TokenOutput token_of(std::uint64_t request, std::uint32_t index) {
  const auto token = static_cast<TokenId>(1000 * request + index);
  return {token, -0.5f, {{token, -0.5f}}};
}

SequenceId sequence_of(std::uint64_t request, std::uint32_t choice) {
  return SequenceId{2 * request + choice};
}

JournalAccepted accepted(std::uint64_t request) {
  return {request, sequence_of(request), 1234, prepared(request)};
}

JournalTokens tokens(std::uint64_t request, std::uint32_t index, std::uint32_t count) {
  JournalTokens made{sequence_of(request), index, {}};
  for (std::uint32_t i = 0; i < count; ++i) made.tokens.push_back(token_of(request, index + i));
  return made;
}

std::vector<JournalRecord> story(std::uint64_t request) {
  return {accepted(request), JournalSubmitted{sequence_of(request), 1}, tokens(request, 0, 2),
          tokens(request, 2, 1)};
}

std::vector<JournalRecord> finished_story(std::uint64_t request, std::uint32_t count) {
  return {accepted(request),
          tokens(request, 0, count),
          JournalFinished{sequence_of(request), FinishReason::kLength, count},
          JournalFinished{sequence_of(request, 1), FinishReason::kLength, 0},
          JournalEnded{request, 5, std::nullopt}};
}

journal_format::Heading heading() {
  return {"model", "cluster", "", 7, 1, 1, 0x1234567890abcdefull};
}

std::string file_of(const std::vector<JournalRecord>& records,
                    const journal_format::Heading& heading) {
  std::string file = *journal_format::write(heading) + *journal_format::write(heading);
  std::uint64_t serial = 0;
  for (const JournalRecord& record : records) {
    const auto bytes = transport::encode(record);
    REQUIRE(bytes.ok());
    std::vector<std::byte> frame;
    journal_format::put_frame(frame, {.file = heading.file, .serial = serial++}, *bytes);
    file += text_of(frame);
  }
  return file;
}

std::string old_file_of(const std::vector<JournalRecord>& records, const std::string& model) {
  std::string file = "troupe-journal-1 " + model + "\n";
  for (const JournalRecord& record : records) {
    const auto bytes = transport::encode(record);
    REQUIRE(bytes.ok());
    put(file, static_cast<std::uint32_t>(bytes->size()));
    put(file, xxh3_64(bytes->data(), bytes->size(), bytes->size()));
    file += text_of(*bytes);
  }
  return file;
}

std::vector<std::size_t> frames_of(const std::string& file) {
  const bool old = file.starts_with("troupe-journal-1 ");
  const std::size_t head =
      old ? journal_format::kOldFrameHeadBytes : journal_format::kFrameHeadBytes;
  std::size_t at = old ? file.find('\n') + 1 : 2 * journal_format::kHeadingBytes;
  std::vector<std::size_t> frames{at};
  while (at < file.size()) {
    std::uint32_t length = 0;
    std::memcpy(&length, file.data() + at + (old ? 0 : 20), sizeof length);
    frames.push_back(at += head + length);
  }
  REQUIRE(at == file.size());
  return frames;
}

journal_folder::Reader reader() { return {"model", "cluster", "", ""}; }

Result<journal_folder::Contents> read(FileSystem& files, const journal_folder::Reader& as) {
  return journal_folder::read(files, kFolder, as);
}

std::string wrong(const Journal& journal) {
  for (const auto& [id, request] : journal.all()) {
    if (request.error) continue;
    const std::string name = request.prepared->name->id;
    const std::uint64_t sent = std::stoull(name.substr(5));
    const auto sent_as = prepared(sent);
    const PreparedRequest& own = *sent_as;
    if (id != sent || request.prepared->prompt != own.prompt ||
        !(request.prepared->sampling == own.sampling) ||
        request.prepared->name->key != own.name->key)
      return name + " was never sent like this";
    for (std::uint32_t choice = 0; choice < own.n; ++choice) {
      const auto& output = journal.find(sequence_of(sent, choice))->output;
      for (std::uint32_t i = 0; i < output.size(); ++i)
        if (output[i] != token_of(sent, i).token) return name + " never had such a token";
    }
  }
  return {};
}

std::optional<std::uint64_t> find(const Journal& journal, std::uint64_t request) {
  for (const auto& [id, known] : journal.all())
    if (known.prepared->name->id == "cmpl-" + std::to_string(request)) return id;
  return std::nullopt;
}

}  // namespace troupe::testing
