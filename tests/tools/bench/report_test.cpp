#include "tools/troupe/bench/report.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>

#include "tools/troupe/bench/serve.h"
#include "tools/troupe/bench/svg_plot.h"

namespace troupe::bench {
namespace {

RunReport one_answer() {
  RunReport report;
  report.facts.model = "<model & co>";
  report.facts.request_rate = std::numeric_limits<double>::infinity();
  RequestRecord r;
  r.started = r.ok = true;
  r.ttft_s = 0.1;
  r.latency_s = 0.3;
  r.ended_s = 0.3;
  r.itls_s = {0.1F, 0.1F};
  r.pieces = r.output_tokens = 3;
  report.records = {r};
  report.summary = summarize(report.records, 0.4, {});
  report.marks = {{0.2, "kill", "<script>alert(1)</script>"}};
  return report;
}

TEST_CASE("the text has vLLM's lines") {
  const std::string text = report_text(one_answer());
  for (const char* line : {"============ Serving Benchmark Result ============\n",
                           "Successful requests:                     1         \n",
                           "Benchmark duration (s):                  0.40      \n",
                           "Output token throughput (tok/s):         7.50      \n",
                           "---------------Time to First Token----------------\n",
                           "Mean TTFT (ms):                          100.00    \n",
                           "P99 TPOT (ms):                           100.00    \n",
                           "-----Time per Output Token (excl. 1st token)------\n",
                           "==================================================\n"})
    CHECK_MESSAGE(text.find(line) != text.npos, line);
  CHECK(text.find("E2EL") == text.npos);  // not asked for
}

TEST_CASE("numbers that JSON has not are words") {
  RunReport report = one_answer();
  report.facts.burstiness = std::numeric_limits<double>::infinity();
  const auto json = report_json(report, true);
  CHECK(json["request_rate"] == "inf");
  CHECK(json["burstiness"] == "inf");
  CHECK(json["max_concurrency"].is_null());
  CHECK(json["request_goodput"].is_null());
  CHECK(json["ttfts"].size() == 1);
  CHECK(!report_json(report, false).contains("ttfts"));
  CHECK(nlohmann::json::parse(json.dump()).is_object());
}

TEST_CASE("a page quotes what others said") {
  const std::string page = report_html({one_answer()}, 0);
  CHECK(page.find("<script") == page.npos);
  CHECK(page.find("&lt;script&gt;alert(1)") != page.npos);
  CHECK(page.find("&lt;model &amp; co&gt;") != page.npos);
  // One without a single answer is a page too.
  RunReport empty;
  empty.summary = summarize({}, 0, {});
  for (const auto& text : {report_html({empty, empty}, 1), report_html({}, 0)}) {
    CHECK(text.find("nan") == text.npos);
    CHECK(text.find("inf\"") == text.npos);
    CHECK(text.ends_with("</html>\n"));
  }
}

TEST_CASE("points of a series are told by what they differ in") {
  RunReport one = one_answer(), two = one_answer();
  one.facts.max_concurrency = 1;
  two.facts.max_concurrency = 200;
  const std::string page = report_html({one, two}, 1);
  CHECK(page.find("<figcaption>Throughput over concurrency</figcaption>") != page.npos);
  CHECK(page.find("class=\"label\">200</text>") != page.npos);
  const std::string text = sweep_text({one, two}, false);
  CHECK(text.find("good %") == text.npos);
  CHECK(std::count(text.begin(), text.end(), '\n') == 3);
  one.facts.goals = {{"ttft", 500}};
  CHECK(sweep_text({one}, false).find("good %") != text.npos);
  two.facts.max_concurrency = 1;
  one.facts.request_rate = 2;
  two.facts.request_rate = 4;
  CHECK(report_html({one, two}, 1).find("Throughput over requests a second") != page.npos);
}

TEST_CASE("an axis that doubles has its points as ticks, as far as there is room") {
  Plot plot{.title = "", .x_label = "", .y_label = "", .x_doubles = true};
  plot.series = {{"", {{0, 1}, {1, 1}, {2, 1}, {4, 1}, {63, 1}, {64, 1}}}};
  const std::string drawn = svg(plot);
  const auto place_of = [&](const std::string& tick) {
    const std::size_t end = drawn.find("\" text-anchor=\"middle\" class=\"label\">" + tick + "<");
    if (end == drawn.npos) return -1.0;
    const std::size_t x = drawn.rfind("x=\"", end);
    return std::strtod(drawn.c_str() + x + 3, nullptr);
  };
  CHECK(place_of("2") - place_of("1") ==
        doctest::Approx(place_of("4") - place_of("2")).epsilon(0.01));
  CHECK(place_of("63") > place_of("4"));
  CHECK(place_of("64") == -1);  // it would be written over its neighbour
  CHECK(drawn.find("nan") == drawn.npos);
  plot.series = {{"", {{8, 1}}}};
  CHECK(svg(plot).find("nan") == drawn.npos);
}

TEST_CASE("what came at one moment is noted") {
  RunReport report = one_answer();
  CHECK(report_text(report).find("at one moment") == std::string::npos);
  report.summary.at_once = 1;
  CHECK(report_text(report).find("came at one moment for 1 requests") != std::string::npos);
  CHECK(report_html({report}, 0).find("came at one moment for 1 requests") != std::string::npos);
}

TEST_CASE("axes have round steps") {
  CHECK(ticks(0) == std::vector<double>{0, 1});
  CHECK(ticks(std::nan("")) == std::vector<double>{0, 1});
  CHECK(ticks(10) == std::vector<double>{0, 2, 4, 6, 8, 10});
  for (const double most : {1e-9, 0.7, 1.0, 3.0, 99.0, 101.0, 12345.0, 1e12}) {
    const auto steps = ticks(most);
    CHECK(steps.size() <= 13);
    CHECK(steps.back() >= most * 0.999);
    CHECK(steps.back() <= most * 2.5);
  }
}

TEST_CASE("result files are named as vLLM names them") {
  ServePlan plan;
  RunFacts facts;
  facts.backend = "openai";
  facts.model = "org/name";
  facts.date = "20260102-030405";
  facts.request_rate = 4;
  CHECK(result_path(plan, facts, "") == "openai-4qps-name-20260102-030405.json");
  facts.request_rate = std::numeric_limits<double>::infinity();
  facts.max_concurrency = 8;
  plan.result_dir = "out";
  CHECK(result_path(plan, facts, "") == "out/openai-infqps-concurrency8-name-20260102-030405.json");
  plan.result_filename = "r.json";
  CHECK(result_path(plan, facts, "") == "out/r.json");
  CHECK(result_path(plan, facts, "rate2") == "out/r-rate2.json");
}

}  // namespace
}  // namespace troupe::bench
