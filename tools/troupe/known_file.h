#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "actors/supervisor/known_state.h"
#include "runtime/result.h"

namespace troupe::cli {

/// STATE/known: what a head has found out of its checkpoint (KnownState), a fact a line. Lines are
/// only added; of two about the same thing the later one counts. Begins with the model that it is
/// about: what is known of another one is worth nothing.
class KnownFile {
 public:
  explicit KnownFile(std::string path) : path_(std::move(path)) {}

  /// A checkpoint with that hash of its headers in that folder: one word. Whoever starts a head
  /// with another folder wants other weights; those of the same folder are to stay.
  static std::string model(const std::string& checkpoint_hash, const std::string& folder);

  /// Empty when there is none, or it is another model's. A line that was cut off by a crash is
  /// left out; so is one that fails its checksum, with a warning. kCorrupt when the file or a line
  /// is none of these.
  Result<KnownState> read(const std::string& model) const;
  /// Begins the file again with what is known, in one piece.
  Status begin(const std::string& model, const KnownState& known);

  Status add(Numerics numerics);
  Status add(const std::vector<KnownTensor>& tensors);
  Status add(const KnownCanary& canary);
  Status forget();

  /// All but the first line; `added` hears what is added from now on, null: nobody does.
  std::string lines(std::function<void(std::string)> added);
  /// Lines of another head's file, as its lines() gave them: they are read as this one's are.
  Status add_lines(const std::string& lines) { return append(lines); }

 private:
  Status append(const std::string& lines);
  std::string path_;
  struct Listener {
    std::mutex mutex;
    std::function<void(std::string)> added;  // guarded by mutex
  };
  std::unique_ptr<Listener> listener_ = std::make_unique<Listener>();
};

}  // namespace troupe::cli
