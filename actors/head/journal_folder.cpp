#include "actors/head/journal_folder.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

#include "runtime/limits.h"
#include "runtime/xxh3.h"
#include "transport/journal_records.h"

namespace troupe::journal_folder {
namespace {

constexpr std::string_view kFormat = "troupe-journal-1 ";
/// Longer than any first line.
constexpr std::size_t kLineBytesMax = 4096;

std::uint64_t hash_of(std::span<const std::byte> bytes) {
  return xxh3_64(bytes.data(), bytes.size(), bytes.size());
}

/// Files by their numbers.
Result<std::map<std::uint64_t, std::string>> files_of(const std::string& folder) {
  std::map<std::uint64_t, std::string> files;
  std::error_code error;
  std::filesystem::directory_iterator entries(folder, error);
  if (error == std::errc::no_such_file_or_directory) return files;
  for (; !error && entries != std::filesystem::directory_iterator(); entries.increment(error)) {
    const std::string name = entries->path().filename().string();
    std::uint64_t number = 0;
    const auto [end, bad] = std::from_chars(name.data(), name.data() + name.size(), number);
    if (bad == std::errc() && std::string_view(end) == ".log" && number > 0 &&
        entries->is_regular_file(error))
      files[number] = entries->path().string();
  }
  if (error)
    return unavailable("The folder " + folder + " cannot be read: " + error.message() + ".");
  return files;
}

/// Earlier versions wrote the numerics behind the model.
bool is_of(std::string_view word, std::string_view model) {
  return word.starts_with(model) && (word.size() == model.size() || word[model.size()] == '-');
}

/// Reads a file's records into the journal.
class FileReader {
 public:
  FileReader(const std::string& path, Contents& out) : path_(path), file_(path), out_(out) {}

  Status read(std::string_view model, bool& of_that_model) {
    std::string line;
    for (char c = 0; line.size() < kLineBytesMax && file_.get(c) && c != '\n';) line += c;
    if (!file_ && !file_.eof())
      return unavailable("The file " + path_ + " cannot be read: " + std::strerror(errno) + ".");
    if (file_.eof()) return cut(line.size());  // it had only just begun
    if (!line.starts_with(kFormat))
      return corrupt("The file " + path_ +
                     " was written by another version of Troupe; use that version until its "
                     "requests are done, or delete the folder, and they are lost.");
    of_that_model = is_of(line.substr(kFormat.size()), model);
    while (next()) {
    }
    return cut(rest_);
  }

 private:
  /// False at the end, or where the file was cut off.
  bool next() {
    std::byte head[kFrameHeadBytes];
    file_.read(reinterpret_cast<char*>(head), sizeof head);
    rest_ = static_cast<std::size_t>(file_.gcount());
    if (rest_ < sizeof head) return false;
    std::uint32_t length = 0;
    std::uint64_t hash = 0;
    std::memcpy(&length, head, sizeof length);
    std::memcpy(&hash, head + sizeof length, sizeof hash);
    if (length == 0 || length > limits::kJournalRecordBytesMax) return false;
    bytes_.resize(length);
    file_.read(reinterpret_cast<char*>(bytes_.data()), static_cast<std::streamsize>(length));
    rest_ += static_cast<std::size_t>(file_.gcount());
    if (static_cast<std::size_t>(file_.gcount()) < length || hash_of(bytes_) != hash) return false;
    rest_ = 0;
    const auto record = transport::decode_record(bytes_);
    if (!record.ok())
      out_.notes.push_back(path_ + ": " + record.error().message);
    else if (out_.journal.fits(*record))
      out_.journal.append(*record);
    return true;
  }

  Status cut(std::size_t bytes) {
    if (bytes == 0) return {};
    // How much follows a record that is broken in the middle?
    file_.clear();
    const auto at = file_.tellg();
    file_.seekg(0, std::ios::end);
    if (at >= 0 && file_.tellg() > at) bytes += static_cast<std::size_t>(file_.tellg() - at);
    out_.notes.push_back(path_ + " was cut off within a record: its last " +
                         std::to_string(bytes) + " bytes are left out.");
    return {};
  }

  const std::string path_;
  std::ifstream file_;
  Contents& out_;
  std::vector<std::byte> bytes_;
  std::size_t rest_ = 0;  ///< of a record that is not whole
};

/// Requests of another model are over, and nobody may have their answers as this one's.
void end_all(Journal& journal, std::int64_t now_unix_ms) {
  std::vector<JournalRecord> ends;
  for (const auto& [id, request] : journal.all())
    if (!request.ended)
      ends.push_back(JournalEnded{
          id, now_unix_ms,
          unavailable("The head was started again with another model or other numerics; send the "
                      "request again.")});
    else if (!request.error)
      ends.push_back(JournalForgotten{id});
  for (const JournalRecord& end : ends) journal.append(end);
}

}  // namespace

std::string file_path(const std::string& folder, std::uint64_t number) {
  return folder + "/" + std::to_string(number) + ".log";
}

std::string first_line(std::string_view model) {
  return std::string(kFormat) + std::string(model) + "\n";
}

Status append(std::vector<std::byte>& out, const JournalRecord& record) {
  const auto bytes = transport::encode(record);
  if (!bytes.ok()) return bytes.error();
  const auto length = static_cast<std::uint32_t>(bytes->size());
  const std::uint64_t hash = hash_of(*bytes);
  const auto put = [&](const void* from, std::size_t count) {
    const auto* begin = static_cast<const std::byte*>(from);
    out.insert(out.end(), begin, begin + count);
  };
  put(&length, sizeof length);
  put(&hash, sizeof hash);
  put(bytes->data(), bytes->size());
  return {};
}

Result<Contents> read(const std::string& folder, std::string_view model, std::int64_t now_unix_ms,
                      bool other_numerics) {
  const auto files = files_of(folder);
  if (!files.ok()) return files.error();
  Contents out;
  for (const auto& [number, path] : *files) {
    bool of_that_model = true;
    const Status read = FileReader(path, out).read(model, of_that_model);
    if (!read.ok()) return read.error();
    if (!of_that_model) end_all(out.journal, now_unix_ms);
    out.next_file = number + 1;
  }
  if (other_numerics) end_all(out.journal, now_unix_ms);
  return out;
}

Status remove_before(const std::string& folder, std::uint64_t number) {
  const auto files = files_of(folder);
  if (!files.ok()) return files.error();
  for (const auto& [other, path] : *files) {
    std::error_code error;
    if (other < number && !std::filesystem::remove(path, error) && error)
      return unavailable("The file " + path + " cannot be removed: " + error.message() + ".");
  }
  return {};
}

}  // namespace troupe::journal_folder
