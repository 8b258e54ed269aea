#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "model/spec/model_spec.h"
#include "runtime/result.h"

namespace troupe {

class NamePatterns;

/// What kind of module a matrix belongs to: methods convert some kinds only.
enum class ModuleKind : std::uint8_t { kLinear, kHead, kStackedExperts };

/// How a checkpoint says that its matrices are stored: config.json's quantization_config.
class Quantization {
 public:
  Quantization();
  ~Quantization();
  Quantization(Quantization&&) noexcept;
  Quantization& operator=(Quantization&&) noexcept;

  /// `value` is null for a model that is not quantised. `file` names it in errors. A method that is
  /// not supported is an error that names those that are.
  static Result<Quantization> parse(const nlohmann::json* value, const std::string& file);

  /// How the config says that a module's weight is stored. `module` has no "*". Fails if one of the
  /// config's patterns takes too long.
  Result<StoredForm> form_of(const std::string& module, ModuleKind kind) const;
  /// All that it has, but plain.
  std::vector<StoredForm> forms() const;

 private:
  /// Modules that are stored alike.
  struct Group {
    StoredForm form;
    bool all_linear = true;                 ///< else
    std::unique_ptr<NamePatterns> targets;  ///< these
  };
  Status read_groups(const nlohmann::json* value, const std::string& file);

  std::vector<Group> groups_;
  std::unique_ptr<NamePatterns> ignored_;
  bool converts_head_ = false;
  bool converts_linear_ = true;  ///< else stacked experts only
};

}  // namespace troupe
