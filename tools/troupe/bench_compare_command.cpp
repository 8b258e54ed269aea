#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "model/json_reader.h"
#include "tools/troupe/bench/compare.h"
#include "tools/troupe/bench/limits.h"
#include "tools/troupe/call.h"
#include "tools/troupe/commands.h"

namespace troupe::cli {
namespace {

struct CompareOptions {
  std::string a, b;
  bool json = false;
};

Result<bench::NamedResults> read_results(const std::string& file) {
  const auto text = read_text_file(file, bench::kResultBytesMax);
  if (!text.ok()) return text.error();
  auto points = bench::parse_results(*text, file);
  if (!points.ok()) return points.error();
  return bench::NamedResults{file, std::move(*points)};
}

int run(const CompareOptions& o) {
  const auto a = read_results(o.a), b = read_results(o.b);
  for (const auto* results : {&a, &b})
    if (!results->ok()) return fail(results->error());
  const auto comparison = bench::compare(*a, *b);
  if (!comparison.ok()) return fail(comparison.error());
  const auto replace = nlohmann::ordered_json::error_handler_t::replace;
  const std::string text =
      o.json ? bench::comparison_json(*comparison).dump(-1, ' ', false, replace) + "\n"
             : bench::comparison_text(*comparison);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return kDone;
}

}  // namespace

Command bench_compare_command() {
  auto o = std::make_shared<CompareOptions>();
  return {
      .name = "compare",
      .description = "Compare two results of `troupe bench serve` or `vllm bench serve`",
      .examples =
          "  troupe bench serve --max-concurrency 1,2,4..64 --json > before.json\n"
          "  troupe bench compare before.json after.json\n\n"
          "Each file has a result (--json, or a file of --save-result), a list of them, or one\n"
          "a line. Points of lists go together by the concurrency and the rate asked for.",
      .flags =
          {{.name = "A.json",
            .target = &o->a,
            .help = "The result to compare with",
            .required = true},
           {.name = "B.json", .target = &o->b, .help = "The result to look at", .required = true},
           {"--json", &o->json, "Print one JSON object instead"}},
      .run = [o](const Call&) { return run(*o); },
      .log_level = "warn",
      .keeps_state = false};
}

}  // namespace troupe::cli
