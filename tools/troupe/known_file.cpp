#include "tools/troupe/known_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <string_view>

#include "runtime/counted.h"
#include "runtime/limits.h"
#include "runtime/log.h"
#include "runtime/xxh3.h"
#include "transport/utf8.h"

namespace troupe::cli {
namespace {

constexpr const char* kName = "troupe-known ";
constexpr const char* kKnownFormat = "4";
/// Tensors of a model, and digests or tokens in a line: far beyond any checkpoint's.
constexpr std::size_t kFactsMax = 1u << 22;

Error cannot_write(const std::string& path) {
  return unavailable("The file " + path + " cannot be written: " + std::strerror(errno) + ".");
}

/// What there is of it takes room that nobody may have.
Error not_begun(const std::string& path) {
  const Error error = cannot_write(path);
  std::error_code failed;
  std::filesystem::remove(path, failed);
  return error;
}

/// What the cluster knows must not be overwritten because it cannot be read now.
Error cannot_read(const std::string& path) {
  return unavailable("The file " + path + " cannot be read: " + std::strerror(errno) +
                     "; mend that, or delete it, and the weights are proven afresh.");
}

Error none_of_its(const std::string& path, const std::string& line) {
  return corrupt("The file " + path + " has a line that is none of its: '" +
                 transport::repair_utf8(line, 64) +
                 "'; delete it, and the weights are proven afresh.");
}

// Names come from a file's JSON: a space or a line's end in one would break a line.
std::string quoted(const std::string& name) {
  std::string text;
  for (const char c : name)
    if (c == '%' || static_cast<unsigned char>(c) <= ' ') {
      text += '%';
      text += "0123456789abcdef"[static_cast<unsigned char>(c) >> 4];
      text += "0123456789abcdef"[c & 15];
    } else {
      text += c;
    }
  return text;
}

std::string unquoted(const std::string& text) {
  std::string name;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned code = 0;
    if (text[i] == '%' && i + 2 < text.size() &&
        std::from_chars(&text[i + 1], &text[i + 3], code, 16).ec == std::errc{}) {
      name += static_cast<char>(code);
      i += 2;
    } else {
      name += text[i];
    }
  }
  return name;
}

constexpr std::string_view kEnd = " .";

/// With a checksum: a line that a disk has changed must not be held against everybody's weights.
std::string closed(std::string fact) {
  std::ostringstream line;
  line << fact << ' ' << std::hex << xxh3_64(fact.data(), fact.size()) << kEnd << '\n';
  return line.str();
}

/// The fact of a line; none, if that is not what was written.
std::optional<std::string> fact_of(const std::string& line) {
  if (!line.ends_with(kEnd)) return std::nullopt;
  const std::size_t space = line.rfind(' ', line.size() - kEnd.size() - 1);
  if (space == line.npos) return std::nullopt;
  std::string fact = line.substr(0, space);
  if (closed(fact) != line + '\n') return std::nullopt;
  return fact;
}

std::string line_of(Numerics numerics) {
  return closed("numerics " + std::string(to_string(numerics)));
}

std::string line_of(const KnownTensor& known) {
  std::ostringstream line;
  line << "tensor " << quoted(known.proof.tensor) << ' ' << quoted(known.proof.file) << ' '
       << known.confirmed << std::hex << ' ' << known.proof.stored.size();
  for (const Digest& d : known.proof.stored) line << ' ' << d.low << ' ' << d.high;
  line << ' ' << known.proof.packed.has_value();
  if (known.proof.packed) line << ' ' << known.proof.packed->low << ' ' << known.proof.packed->high;
  return closed(line.str());
}

std::string line_of(const KnownCanary& canary) {
  std::ostringstream line;
  line << "canary " << canary.settled << ' ' << canary.prompt << ' ' << canary.tokens.size();
  for (const TokenId token : canary.tokens) line << ' ' << token;
  line << ' ' << canary.digests.size() << std::hex;
  for (const std::uint64_t digest : canary.digests) line << ' ' << digest;
  return closed(line.str());
}

bool get(std::istringstream& in, KnownTensor& known) {
  std::string tensor, file;
  std::size_t count = 0;
  bool packed = false;
  in >> tensor >> file >> known.confirmed >> std::hex >> count;
  if (!in || count == 0 || count > static_cast<std::size_t>(limits::kSumSlices)) return false;
  known.proof.tensor = unquoted(tensor);
  known.proof.file = unquoted(file);
  known.proof.stored.resize(count);
  for (Digest& d : known.proof.stored) in >> d.low >> d.high;
  in >> packed;
  if (packed) in >> known.proof.packed.emplace().low >> known.proof.packed->high;
  return static_cast<bool>(in);
}

bool get(std::istringstream& in, KnownCanary& canary) {
  std::size_t tokens = 0, digests = 0;
  if (!(in >> canary.settled >> canary.prompt >> tokens) || tokens > kFactsMax) return false;
  canary.tokens.resize(tokens);
  for (TokenId& token : canary.tokens) in >> token;
  if (!(in >> digests) || digests > kFactsMax) return false;
  canary.digests.resize(digests);
  in >> std::hex;
  for (std::uint64_t& digest : canary.digests) in >> digest;
  return static_cast<bool>(in);
}

}  // namespace

std::string KnownFile::model(const std::string& checkpoint_hash, const std::string& folder) {
  std::error_code error;
  const auto place = std::filesystem::weakly_canonical(folder, error);
  return checkpoint_hash + '@' + quoted(error ? folder : place.string());
}

Result<KnownState> KnownFile::read(const std::string& model) const {
  errno = 0;
  std::ifstream in(path_);
  if (!in && errno != ENOENT) return cannot_read(path_);
  KnownState known;
  std::string line;
  if (!in) return known;
  std::getline(in, line);
  if (in.bad()) return cannot_read(path_);
  if (!line.starts_with(kName)) return none_of_its(path_, line);
  if (line != kName + std::string(kKnownFormat) + " " + model) return known;
  std::map<std::string, KnownTensor> tensors;
  std::size_t damaged = 0;
  while (std::getline(in, line)) {
    const auto fact = fact_of(line);
    if (!fact) {
      if (!in.eof()) ++damaged;  // else a crash cut it off
      continue;
    }
    std::istringstream words(*fact);
    std::string kind, value;
    words >> kind;
    bool good = tensors.size() <= kFactsMax;
    if (kind == "numerics") {
      words >> value;
      const auto numerics = parse_numerics(value);
      good = numerics.has_value();
      if (good && known.numerics && known.numerics != *numerics) {
        // Of the numerics before, and of no others.
        known.canary.reset();
        for (auto& [name, tensor] : tensors) tensor.proof.packed.reset();
      }
      if (good) known.numerics = *numerics;
    } else if (kind == "tensor") {
      KnownTensor tensor;
      good = good && get(words, tensor);
      if (good) tensors[tensor.proof.tensor] = std::move(tensor);
    } else if (kind == "canary") {
      KnownCanary canary;
      good = get(words, canary);
      if (good) known.canary = std::move(canary);
    } else {
      good = false;
    }
    if (!good) return none_of_its(path_, line);
  }
  if (in.bad()) return cannot_read(path_);
  if (damaged > 0) {
    logger().warn(
        "The file {} has {} that the disk has changed; what is lost with that is proven afresh. "
        "Look at this machine's storage.",
        path_, counted(damaged, "line"));
    // What they said of the numerics is not known: these depend on them.
    known.canary.reset();
    for (auto& [name, tensor] : tensors) tensor.proof.packed.reset();
  }
  for (auto& [name, tensor] : tensors) known.tensors.push_back(std::move(tensor));
  return known;
}

Status KnownFile::begin(const std::string& model, const KnownState& known) {
  const std::string next = path_ + ".new";
  {
    std::ofstream out(next, std::ios::trunc);
    out << kName << kKnownFormat << ' ' << model << '\n';
    if (known.numerics) out << line_of(*known.numerics);
    for (const auto& tensor : known.tensors) out << line_of(tensor);
    if (known.canary) out << line_of(*known.canary);
    if (!out.flush()) return not_begun(next);
  }
  // Else a power cut may leave the new name with nothing in it.
  const int file = ::open(next.c_str(), O_WRONLY | O_CLOEXEC);
  const bool safe = file >= 0 && ::fsync(file) == 0;
  if (file >= 0) ::close(file);
  if (!safe) return not_begun(next);
  std::error_code error;
  std::filesystem::rename(next, path_, error);
  if (error)
    return unavailable("The file " + path_ + " cannot be written: " + error.message() + ".");
  return {};
}

Status KnownFile::append(const std::string& lines) {
  const int file = ::open(path_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (file < 0) return cannot_write(path_);
  const off_t before = ::lseek(file, 0, SEEK_END);
  std::size_t done = 0;
  while (done < lines.size()) {
    const ssize_t wrote = ::write(file, lines.data() + done, lines.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) {
      const Error error = cannot_write(path_);
      // A part of a line would spoil the next one.
      if (before >= 0) (void)!::ftruncate(file, before);
      ::close(file);
      return error;
    }
    done += static_cast<std::size_t>(wrote);
  }
  ::close(file);
  const std::lock_guard lock(listener_->mutex);
  if (listener_->added) listener_->added(lines);
  return {};
}

std::string KnownFile::lines(std::function<void(std::string)> added) {
  {
    const std::lock_guard lock(listener_->mutex);
    listener_->added = std::move(added);
  }
  std::ifstream in(path_);
  std::string first;
  std::getline(in, first);
  std::ostringstream rest;
  rest << in.rdbuf();
  return rest.str();
}

Status KnownFile::add(Numerics numerics) { return append(line_of(numerics)); }

Status KnownFile::add(const std::vector<KnownTensor>& tensors) {
  std::string lines;
  for (const auto& tensor : tensors) lines += line_of(tensor);
  return append(lines);
}

Status KnownFile::add(const KnownCanary& canary) { return append(line_of(canary)); }

Status KnownFile::forget() {
  std::error_code error;
  std::filesystem::remove(path_, error);
  if (error)
    return unavailable("The file " + path_ + " cannot be deleted: " + error.message() + ".");
  return {};
}

}  // namespace troupe::cli
