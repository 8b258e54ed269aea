#include "tools/troupe/command_line/parse.h"

#include <doctest/doctest.h>

#include "runtime/version.h"

namespace troupe::cli {
namespace {

using Words = std::vector<std::string>;

/// A target of each type.
struct Targets {
  bool on = false;
  std::int32_t i32 = 1;
  std::int64_t i64 = 1;
  std::uint32_t u32 = 1;
  std::uint64_t u64 = 1;
  double number = 1;
  std::string text = "as before";
  std::optional<std::int32_t> maybe_i32 = {};
  std::optional<std::int64_t> maybe_i64 = {};
  std::optional<std::uint32_t> maybe_u32 = {};
  std::optional<std::uint64_t> maybe_u64 = {};
  std::optional<float> maybe_float = {};
  std::optional<double> maybe_double = {};
  std::vector<std::int32_t> ids = {};
  std::vector<std::string> texts = {}, repeated = {};
  bool operator==(const Targets&) const = default;
};

Command command_of(Targets& t) {
  return {.name = "run",
          .description = "Runs",
          .examples = "  tool run",
          .flags = {{"--on", &t.on, "A switch"},
                    {.name = "--i32", .target = &t.i32, .help = "", .range = Range{-2, 64}},
                    {"--i64", &t.i64, ""},
                    {.name = "--u32", .target = &t.u32, .help = "", .range = kPositive},
                    {.name = "--u64", .target = &t.u64, .help = "", .short_name = "-u"},
                    {.name = "--number", .target = &t.number, .help = "", .range = Range{0, 0.5}},
                    {"--text", &t.text, "", "Words"},
                    {"--maybe-i32", &t.maybe_i32, ""},
                    {"--maybe-i64", &t.maybe_i64, ""},
                    {"--maybe-u32", &t.maybe_u32, ""},
                    {"--maybe-u64", &t.maybe_u64, ""},
                    {"--maybe-float", &t.maybe_float, ""},
                    {"--maybe-double", &t.maybe_double, ""},
                    {"--ids", &t.ids, ""},
                    {"--texts", &t.texts, ""},
                    {.name = "--repeated",
                     .target = &t.repeated,
                     .help = "",
                     .group = "",
                     .one_value_each = true}},
          .run = [](const Call&) { return 0; }};
}

/// `tool run`, with one command below `tool group`, whose NAME is required.
struct Tool {
  Targets targets;
  std::string name;
  bool force = false;
  Command root{
      .name = "tool",
      .description = "A tool.",
      .flags = {{"--version", Print::kVersion, "The version"}, {"--force", &force, "Of the tool"}},
      .below = {
          command_of(targets),
          {.name = "group",
           .description = "Has one below it",
           .below = {
               {.name = "show",
                .description = "Shows",
                .flags =
                    {{.name = "--help", .target = Print::kHelp, .help = "This", .short_name = "-h"},
                     {.name = "NAME", .target = &name, .help = "Whose", .required = true}},
                .run = [](const Call&) { return 0; }}}}}};
};

TEST_CASE("each type of target takes what is written for it") {
  struct Case {
    Words words;
    Targets wanted;
  };
  for (const Case& c : {
           Case{{}, {}},
           {{"--on"}, {.on = true}},
           {{"--i32", "-2"}, {.i32 = -2}},
           {{"--i64=-9000000000"}, {.i64 = -9000000000}},
           {{"--u32", "4000000000"}, {.u32 = 4000000000}},
           {{"--u64", "18446744073709551615"}, {.u64 = 18446744073709551615u}},
           {{"--number", "0.25"}, {.number = 0.25}},
           {{"--text", ""}, {.text = ""}},
           {{"--text=a=b"}, {.text = "a=b"}},
           {{"--maybe-i32", "-1"}, {.maybe_i32 = -1}},
           {{"--maybe-i64", "-1"}, {.maybe_i64 = -1}},
           {{"--maybe-u32", "1"}, {.maybe_u32 = 1}},
           {{"--maybe-u64", "0"}, {.maybe_u64 = 0}},
           {{"--maybe-float", "0.5"}, {.maybe_float = 0.5f}},
           {{"--maybe-double", "1e3"}, {.maybe_double = 1e3}},
           {{"--u64", "010"}, {.u64 = 10}},
           {{"--u64", "+7"}, {.u64 = 7}},
           {{"--ids", "1,2,3"}, {.ids = {1, 2, 3}}},
           {{"--texts", "a,b", "c", "--texts", "d"}, {.texts = {"a,b", "c", "d"}}},
           {{"--repeated", "a", "--repeated", "b"}, {.repeated = {"a", "b"}}},
       }) {
    Tool tool;
    Words words{"run"};
    words.insert(words.end(), c.words.begin(), c.words.end());
    const Parsed parsed = parse(tool.root, words);
    CAPTURE(words.back());
    CHECK(parsed.kind == Parsed::Kind::kRun);
    CHECK(parsed.path == "tool run");
    REQUIRE(parsed.command == &tool.root.below[0]);
    CHECK(tool.targets == c.wanted);
    for (const Flag& flag : parsed.command->flags)
      CHECK(flag.given ==
            (!c.words.empty() && c.words[0].substr(0, c.words[0].find('=')) == flag.name));
  }
}

TEST_CASE("a short name is the flag, on a command line") {
  for (const Words& words : {Words{"run", "-u", "7"}, {"run", "-u7"}}) {
    Tool tool;
    const Parsed parsed = parse(tool.root, words);
    CHECK(parsed.kind == Parsed::Kind::kRun);
    CHECK(tool.targets == Targets{.u64 = 7});
    CHECK(is_given(*parsed.command, "--u64"));
  }
  Tool tool;
  CHECK(find_flag(tool.root.below[0], "-u") == find_flag(tool.root.below[0], "--u64"));
  CHECK(find_flag(tool.root.below[0], "") == nullptr);
  CHECK(parse(tool.root, {"run", "-u", "1", "--u64", "2"}).kind == Parsed::Kind::kWrong);
  CHECK(parse(tool.root, {"run", "-u", "x"}).text ==
        "--u64: 'x' is no whole number from 0 to 18446744073709551615");
}

TEST_CASE("what a flag does not take is named") {
  struct Case {
    Words words;
    std::string text;
    Words left = {};
  };
  for (const Case& c : {
           Case{{}, "A subcommand is required"},
           {{"group"}, "A subcommand is required"},
           {{"group", "show"}, "NAME is required"},
           {{"run", "--i32", "65"}, "--i32: Value 65 not in range -2 to 64"},
           {{"run", "--i32", "many"},
            "--i32: 'many' is no whole number from -2147483648 to 2147483647"},
           {{"run", "--u64", "1.5"},
            "--u64: '1.5' is no whole number from 0 to 18446744073709551615"},
           {{"run", "--u64", "-1"},
            "--u64: '-1' is no whole number from 0 to 18446744073709551615"},
           {{"run", "--u64", "18446744073709551616"},
            "--u64: '18446744073709551616' is no whole number from 0 to 18446744073709551615"},
           {{"run", "--maybe-u32", "0x10"},
            "--maybe-u32: '0x10' is no whole number from 0 to 4294967295"},
           {{"run", "--maybe-u32", ""}, "--maybe-u32: '' is no whole number from 0 to 4294967295"},
           {{"run", "--maybe-float", ""}, "--maybe-float: '' is no number"},
           {{"run", "--maybe-double", "0.5x"}, "--maybe-double: '0.5x' is no number"},
           {{"run", "--number", "nan"}, "--number: 'nan' is no number"},
           {{"run", "--maybe-double", "inf"}, "--maybe-double: 'inf' is no number"},
           {{"run", "--i32", "+-2"},
            "--i32: '+-2' is no whole number from -2147483648 to 2147483647"},
           {{"run", "--number", "0.6"}, "--number: Value 0.6 not in range 0.000000 to 0.500000"},
           {{"run", "--text"}, "--text: 1 required TEXT missing"},
           {{"run", "--ids", "1,x"}, "Could not convert: --ids = 1,x"},
           {{"run", "--ids", "1,2,,3"}, "Could not convert: --ids = 1,2,,3"},
           {{"run", "--ids", "1,"}, "Could not convert: --ids = 1,"},
           {{"run", "--ids", ""}, "Could not convert: --ids = "},
           {{"--force", "run"}, "--force is no flag of `tool run`"},
           {{"run", "--nosuch", "x"},
            "The following arguments were not expected: x --nosuch",
            {"--nosuch", "x"}},
           {{"run", "--repeated", "a", "b"}, "The following argument was not expected: b", {"b"}},
       }) {
    Tool tool;
    const Parsed parsed = parse(tool.root, c.words);
    CHECK(parsed.kind == Parsed::Kind::kWrong);
    CHECK(parsed.text == c.text);
    CHECK(parsed.left == c.left);
  }
  Tool tool;
  const Parsed zero = parse(tool.root, {"run", "--u32", "0"});
  CHECK(zero.text == "--u32: Value 0 is not above 0");
  CHECK(parse(tool.root, {"run", "--text", "a", "--text", "b"}).kind == Parsed::Kind::kWrong);
}

TEST_CASE("help and the version are printed instead") {
  Tool tool;
  const Parsed version = parse(tool.root, {"--version"});
  CHECK(version.kind == Parsed::Kind::kPrint);
  CHECK(version.text == std::string(kVersion) + "\n");
  const Parsed help = parse(tool.root, {"group", "show", "-h"});
  CHECK(help.kind == Parsed::Kind::kPrint);
  CHECK(help.path == "tool group show");
  CHECK(help.text.find("NAME TEXT REQUIRED") != std::string::npos);
  // A command has no flag that its description lacks.
  CHECK(parse(tool.root, {"run", "--help"}).kind == Parsed::Kind::kWrong);
}

TEST_CASE("the help shows groups, ranges and how it ends, and nothing hidden") {
  Targets targets;
  Command command = command_of(targets);
  command.notes = "A note.";
  command.flags.push_back({"--help", Print::kHelp, "This"});
  const std::string help = parse(command, {"--help"}).text;
  for (const char* part :
       {"\nWords:\n  --text TEXT", "--i32 INT:INT in [-2 - 64]", "UINT:POSITIVE", "-u,--u64 UINT",
        "--texts TEXT ...", "\nA note.\nExamples:\n  tool run\n"})
    CHECK_MESSAGE(help.find(part) != std::string::npos, part, help);
  CHECK(help.find("--repeated") == std::string::npos);
}

TEST_CASE("a flag takes a file's values as the command line's") {
  Targets targets;
  Command command = command_of(targets);
  const auto set = [&](const char* name, const Words& values) {
    return set_flag(*find_flag(command, name), values);
  };
  CHECK(set("--on", {"true"}).ok());
  CHECK(set("--i32", {"5"}).ok());
  CHECK(set("--ids", {"1", "2"}).ok());
  CHECK(set("--repeated", {"a", "b"}).ok());
  CHECK(set("--texts", {}).ok());
  CHECK(targets == Targets{.on = true, .i32 = 5, .ids = {1, 2}, .repeated = {"a", "b"}});
  CHECK(is_given(command, "--on"));
  CHECK(!is_given(command, "--texts"));
  CHECK(set("--i32", {"65"}).error().message == "--i32: Value 65 not in range -2 to 64");
  CHECK(!set("--on", {"maybe"}).ok());
  CHECK(!set("--text", {"a", "b"}).ok());
  CHECK(!is_given(command, "--text"));
}

}  // namespace
}  // namespace troupe::cli
