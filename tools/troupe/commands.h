#pragma once

#include "tools/troupe/command_line/command.h"
#include "tools/troupe/doubles.h"

namespace troupe::cli {

Command up_command(const Doubles& doubles);
Command head_command(const Doubles& doubles);
Command worker_command(const Doubles& doubles);
Command status_command();
Command top_command();
Command drain_command();
Command rebalance_command();
Command stop_command();
Command token_command();
Command certificate_command();
Command chat_command(const Doubles& doubles);
Command generate_command(const Doubles& doubles);
Command tokenize_command();
Command plan_command();
Command pull_command();
Command bench_command(const Doubles& doubles);
/// Of all that the program has, once it runs.
Command completion_command(const Command& root);

// Below `troupe bench`.
Command bench_serve_command();
Command bench_compare_command();
Command bench_throughput_command(const Doubles& doubles);
Command bench_latency_command(const Doubles& doubles);

}  // namespace troupe::cli
