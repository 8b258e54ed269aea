#pragma once

#include <functional>
#include <memory>
#include <string>

#include "actors/api/cluster.h"
#include "model/chat/answer_parser.h"
#include "runtime/generation.h"
#include "runtime/result.h"

namespace troupe::cli {

/// Who answers, and what is to be known of it.
struct ChatSource {
  std::unique_ptr<Cluster> cluster;
  std::string model;
  /// How its answer to this request holds thoughts. Another process can tell of a short chat only.
  std::function<ReasoningStart(const GenerationRequest&)> reasoning;
  bool remote = false;  ///< it may go away, and come back
};

/// The running cluster that the state folder leads to. Errors: as Cluster::connect, and kNotFound
/// when none was started there.
Result<ChatSource> connect_source(const std::string& state_dir);

/// One of this process's own. What is wrong with the model's files or with what `request` asks for
/// is said before weights are loaded.
Result<ChatSource> start_source(const LocalClusterOptions& options, GenerationRequest request);

}  // namespace troupe::cli
