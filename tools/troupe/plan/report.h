#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tools/troupe/plan/fit.h"

namespace troupe {

/// The flags of `troupe head` for a layout, as words: what was asked for and what was chosen.
std::vector<std::string> flags_of(const FitQuestion& question, const Fit& fit);

/// For people: a table and some sentences. `model` is the folder.
std::string report_text(const FitQuestion& question, const FitAnswer& answer,
                        const std::string& model);
/// For programs: one object; sizes are bytes.
nlohmann::ordered_json report_json(const FitQuestion& question, const FitAnswer& answer);

}  // namespace troupe
