#pragma once

#include <string>

#include "model/json_reader.h"
#include "model/spec/read_spec.h"
#include "tests/model/must.h"
#include "tests/source_path.h"

namespace troupe::testing {

/// config.json of a published model.
inline std::string published_text(const std::string& name) {
  return must(read_text_file(source_path("tests/model/published/" + name + ".json"), 1u << 20));
}

inline ModelSpec published(const std::string& name) {
  return must(parse_model_spec(published_text(name), name));
}

}  // namespace troupe::testing
