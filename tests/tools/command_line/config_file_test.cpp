#include "tools/troupe/command_line/config_file.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace troupe::cli {
namespace {

struct Options {
  std::string model, config;
  int size = 1;
  double share = 0;
  bool on = false;
  std::vector<std::string> keys;
};

/// What comes of a file with that text; the size is the command line's.
Result<Options> read(const std::string& text) {
  Options o;
  Command command{
      .name = "up",
      .description = "",
      .flags = {{"--config", &o.config, ""},
                {"--model", &o.model, "", ""},
                {.name = "--name",
                 .target = &o.model,
                 .help = "",
                 .short_name = "-n",
                 .elsewhere = {"--title"}},
                {.name = "--size", .target = &o.size, .help = "", .given = true},
                {"--share", &o.share, ""},
                {"--on", &o.on, ""},
                {"--keys", &o.keys, ""},
                {.name = "--port", .target = &o.size, .help = "", .range = Range{0, 65535}}}};
  const auto path = std::filesystem::temp_directory_path() /
                    ("troupe-config-" + std::to_string(::getpid()) + ".toml");
  std::ofstream(path) << text;
  const Status applied = apply_config_file(command, "troupe up", path.string());
  std::filesystem::remove(path);
  if (!applied.ok()) return applied.error();
  return o;
}

TEST_CASE("a file gives flags their values, but those of the command line") {
  const auto o =
      read("model = 'DIR'\nsize = 7\nshare = 0.123456789\non = true\nkeys = ['a', 2, true]\n");
  REQUIRE(o.ok());
  CHECK(o->model == "DIR");
  CHECK(o->size == 1);
  CHECK(o->share == 0.123456789);
  CHECK(o->on);
  CHECK(o->keys == std::vector<std::string>{"a", "2", "true"});
}

TEST_CASE("what a file has wrong is named") {
  for (const auto& [text, said] : {
           std::pair{"key = 1", "is no flag of `troupe up`; did you mean 'keys'?"},
           {"config = 'x'", "'config' in "},
           {"title = 'x'", "'title' in "},
           {"title = 'x'", "is no flag of `troupe up`; did you mean 'name'?"},
           {"n = 'x'", "'n' in "},
           {"banana = 1", "is no flag of `troupe up`; `troupe up --help` lists them."},
           {"on = 'maybe'", "'on' in "},
           {"port = 70000", "--port: Value 70000 not in range 0 to 65535"},
           {"model = ['a', 'b']", "'model' in "},
           {"keys = [[1]]", "'keys' must be a text, a number, true or false, or a list of those"},
           {"keys = {a = 1}", "'keys' must be a text"},
           {"keys = [1", "cannot be read ("},
       }) {
    const auto o = read(text);
    REQUIRE_MESSAGE(!o.ok(), text);
    CHECK_MESSAGE(o.error().message.find(said) != std::string::npos, o.error().message);
  }
}

}  // namespace
}  // namespace troupe::cli
