#pragma once

#include <optional>
#include <string>

#include "runtime/result.h"

namespace troupe {

/// kNotFound unless a folder or a file is there; a model's name on the hub is told how to get it.
Status check_model_path(const std::string& model);

/// A model of the hub: "deepseek-ai/DeepSeek-V3", or "org/name@v1.0".
struct HubModel {
  std::string name;
  std::string revision = "main";  ///< a branch, a tag or a commit
};

/// None: it has not the form of one. A path may have it, too.
std::optional<HubModel> parse_hub_model(const std::string& model);

/// The model whose snapshot in a cache of the hub the path is, or is in: of
/// models--ORG--NAME/snapshots/COMMIT, or .../head/snapshots/COMMIT. Its revision is the commit.
std::optional<HubModel> snapshot_model(const std::string& path);

/// The end of an error about something missing below `path`: how to get it, where the hub has it,
/// since a snapshot may be here in part. Else empty.
std::string pull_advice(const std::string& path);

}  // namespace troupe
