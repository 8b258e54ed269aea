#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/head/journal_disk.h"
#include "actors/head/journal_folder.h"

/// Small journals, written by hand.
namespace troupe::testing {

inline const std::string kFolder = "state/journal";

/// A request with three choices' worth of everything that a record can say; named "cmpl-REQUEST".
std::shared_ptr<const PreparedRequest> prepared(std::uint64_t request);
/// The token at that place of each of its two choices: others for each request.
TokenOutput token_of(std::uint64_t request, std::uint32_t index);
SequenceId sequence_of(std::uint64_t request, std::uint32_t choice = 0);
JournalAccepted accepted(std::uint64_t request);
JournalTokens tokens(std::uint64_t request, std::uint32_t index, std::uint32_t count);
/// It is accepted, and its first choice has three tokens.
std::vector<JournalRecord> story(std::uint64_t request);
/// All of it, to its end, with `count` tokens.
std::vector<JournalRecord> finished_story(std::uint64_t request, std::uint32_t count);

journal_format::Heading heading();
/// The bytes of a file, of version 1 or 2.
std::string file_of(const std::vector<JournalRecord>& records,
                    const journal_format::Heading& heading = testing::heading());
std::string old_file_of(const std::vector<JournalRecord>& records,
                        const std::string& model = "model");
/// The places in it where frames begin, and its end.
std::vector<std::size_t> frames_of(const std::string& file);

/// Of "model" in "cluster", with numerics that nobody has decided.
journal_folder::Reader reader();
Result<journal_folder::Contents> read(FileSystem& files,
                                      const journal_folder::Reader& as = reader());
/// What is wrong with what was read: a token that its request never had, a request that nobody has
/// sent. Those that ended with an error say nothing. Empty: nothing.
std::string wrong(const Journal& journal);
/// The request by what it is named; none: nobody finds it.
std::optional<std::uint64_t> find(const Journal& journal, std::uint64_t request);

}  // namespace troupe::testing
