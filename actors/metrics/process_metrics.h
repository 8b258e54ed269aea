#pragma once

#include <prometheus/metric_family.h>

#include <vector>

namespace troupe {

/// What Prometheus' clients tell of their process, under their names: memory, time, files. What the
/// system does not say is left out.
std::vector<prometheus::MetricFamily> process_metrics();

}  // namespace troupe
