"""The rules of the house (rules.py) hold, and each of them would notice if one did not."""

import pytest

import rules
from sources import read_sources

SOURCES = read_sources()


@pytest.mark.parametrize("rule", rules.RULES, ids=lambda rule: rule.__name__)
def test_rule_holds(rule):
    broken = list(rule(SOURCES))
    assert not broken, "\n".join(broken)


def lines(count, line="  work();\n"):
    return line * count


LIMITS = "runtime/limits.h"
MACHINE = """#pragma once
namespace troupe {
class A {
 public:
  void on(int b) { c_ = b; }
  std::string violation() const;

 private:
  int a_ = 0;
};
}
"""
# (rule, sources that break it, how often)
VIOLATIONS = [
    (rules.include_rules, {"runtime/a.h": '#include "model/config.h"\n'}, 1),
    (rules.include_rules, {"kernels/a.cpp": '#include "transport/codec.h"\n'}, 1),
    (rules.include_rules, {"transport/a.cpp": '#include "kernels/linear.h"\n#include "model/x.h"\n'}, 2),
    (rules.include_rules, {"model/a.cpp": '# include "transport/codec.h"\n'}, 1),
    (rules.include_rules, {"actors/router/a.cpp": '#include "tools/troupe/flags.h"\n'}, 1),
    (rules.include_rules, {"runtime/a.h": "#include <caf/actor.hpp>\n"}, 1),
    (rules.include_rules, {"runtime/a.h": "#include <capnp/message.h>\n"}, 1),
    (rules.include_rules, {"runtime/a.h": "#include <cuda_runtime.h>\n"}, 1),
    (rules.include_rules, {"transport/a.h": "#include <caf/actor.hpp>\n"}, 1),
    (rules.include_rules, {"model/a.h": "#include <caf/actor.hpp>\n"}, 1),
    (rules.include_rules, {"actors/router/a.cpp": "#include <caf/all.hpp>\n"}, 1),
    (rules.include_rules, {"actors/router/a.cpp": "#include <boost/beast/http.hpp>\n"}, 1),
    (rules.costly_headers, {"actors/a/s.h": "#include <boost/beast/http.hpp>\n",
                            "actors/a/one.cpp": '#include "actors/a/s.h"\n',
                            "actors/a/two.cpp": '#include "actors/a/s.h"\n'}, 1),
    (rules.line_form, {"runtime/a.h": "x" * 101 + "\n", "tools/a.py": "x" * 111 + "\n"}, 2),
    (rules.line_form, {"runtime/a.h": "int a; \n\tint b;\nint c;"}, 3),
    (rules.file_length, {"runtime/a.cpp": lines(501)}, 1),
    (rules.function_length, {"runtime/a.cpp": "namespace a {\nint f(int b) {\n" + lines(90) + "}\n}\n"},
     1),
    (rules.function_length, {"runtime/a.h": "struct A {\n  A() : b_{1} {\n" + lines(90) + "  }\n};\n"}, 1),
    (rules.function_length, {"tests/a.cpp": 'TEST_CASE("a") {\n' + lines(120) + "}\n"}, 1),
    (rules.header_guards, {"runtime/a.h": "int f();\n"}, 1),
    (rules.header_guards, {"runtime/a.h": "#pragma once\nusing namespace std;\n"}, 1),
    (rules.banned_calls, {"model/a.cpp": "void f() { exit(1); }\n"}, 1),
    (rules.banned_calls, {"model/a.cpp": "int f() { return rand() + std::rand(); }\n"}, 2),
    (rules.banned_calls, {"tests/a.cpp": "std::random_device device;\n"}, 1),
    (rules.banned_calls, {"actors/a/a.cpp": "std::this_thread::sleep_for(1s);\nusleep(3);\n"}, 2),
    (rules.banned_calls, {"actors/a/a.cpp": "std::cout << 1;\nprintf(text);\n"}, 2),
    (rules.banned_calls, {"actors/a/a.cpp": 'spdlog::info("hello");\n'}, 1),
    (rules.banned_calls, {"tools/a.cpp": "int n = atoi(text);\n"}, 1),
    (rules.banned_calls, {"tools/a.cpp": "sprintf(to, text);\nstd::system(text);\n"}, 2),
    (rules.banned_calls, {"runtime/a.cpp": "auto a = getenv(text);\nthread.detach();\n"}, 2),
    (rules.banned_calls, {"model/a.cpp": "void f() { throw 1; }\n"}, 1),
    (rules.banned_calls, {"runtime/a.cpp": "static Registry instance;\n"}, 1),
    (rules.banned_calls, {"kernels/cpu/a.cpp": "#include <cmath>\nfloat y = std::exp(x);\n"}, 2),
    (rules.banned_calls, {"transport/a.cpp": "auto t = std::chrono::system_clock::now();\n"}, 1),
    (rules.banned_calls, {"actors/a.cpp": "auto t = std::chrono::steady_clock::now();\n"}, 1),
    (rules.actor_folders, {"actors/base/a.h": '#include "actors/router/router.h"\n'}, 1),
    (rules.actor_folders, {"actors/router/a.h": '#include "actors/supervisor/supervisor.h"\n'}, 1),
    (rules.actor_folders, {"actors/cellar/a.h": ""}, 1),
    (rules.pure_machines, {"actors/router/router.h": MACHINE,
                           "actors/router/router.cpp": "auto t = now();\nstd::thread thread;\n"}, 2),
    (rules.machine_fields, {"actors/a/a.h": MACHINE.replace(
        "  int a_ = 0;\n", "".join(f"  std::map<int, B> a{i}_;\n" for i in range(16)))}, 1),
    (rules.one_definition, {"model/a.h": "namespace troupe {\nstruct A { int a; };\n}\n",
                            "actors/a/b.h": "namespace troupe {\nclass A : B {\n};\n}\n"}, 1),
    (rules.compiler_flags, {"kernels/CMakeLists.txt": "add(-march=native)\nadd(-ffast-math)\n"}, 6),
    (rules.one_version, {"CMakeLists.txt": "project(Troupe VERSION 0.2.0)\n",
                         "runtime/version.cpp": 'kVersion = "0.1.0";\n'}, 1),
    (rules.metric_names, {"actors/metrics/a.cpp": '"troupe:nodes" "troupe:num_request_running"\n'}, 16),
    (rules.http_paths, {"actors/gateway/a.cpp": '"/health" "/v1/model"\n'}, 8),
    (rules.limit_reasons, {LIMITS: "inline constexpr int kThingsMax = 3;\n"}, 1),
    (rules.limit_reasons, {LIMITS: "/// Why.\ninline constexpr int kThings = 3;\n"
                                   "inline constexpr int kOthers = 3;\n"}, 1),
    (rules.limit_reasons, {LIMITS: "/// Why.\ninline constexpr int kWaitMin = 3;\n"}, 1),
    (rules.schemas, {"transport/schema/a.capnp": "@0xab;\nstruct A { a @0 :Bool; b @2 :Bool; }\n"}, 1),
    (rules.schemas, {"transport/schema/a.capnp": "@0xab;\nenum A { a @0; b @0; }\n"}, 1),
    (rules.schemas, {"transport/schema/a.capnp": "@0xab;\n", "transport/schema/b.capnp": "@0xab;\n"}, 1),
    (rules.schemas, {"transport/schema/aB.capnp": "struct A {}\n"}, 2),
    (rules.words, {"runtime/a.h": "// TODO: later\n// see issue 12\n// from /home/me/notes\n"}, 3),
    (rules.words, {"runtime/a.h": "// It begins anew.\n// A shard is told of it in vain.\n"}, 3),
    (rules.readmes, {"actors/router/a.cpp": "", "actors/README.md": ""}, 1),
    (rules.fuzz_targets, {"tests/fuzz/extra_fuzz.cpp": "", "tests/fuzz/CMakeLists.txt": ""}, 15),
]


@pytest.mark.parametrize("rule, sources, count", VIOLATIONS,
                         ids=[f"{rule.__name__}-{i}" for i, (rule, *_) in enumerate(VIOLATIONS)])
def test_rule_notices(rule, sources, count):
    broken = list(rule(sources))
    assert len(broken) == count, "\n".join(broken)


def test_every_rule_is_shown_to_notice():
    assert {rule for rule, *_ in VIOLATIONS} == set(rules.RULES)


# What looks like a violation and is none.
FINE = {
    "runtime/a.cpp": '#include "runtime/a.h"\n// exit(1), rand() and std::cout\n'
                     'const char* kText = "throw exit(1)";\nvoid f() { server.exit(); }\n',
    "model/a.cpp": "namespace a {\n" + "int f(int b) { return b; }\n" * 200 + "}\n",
    "actors/a/a.h": MACHINE, "actors/b/a.h": MACHINE.replace("class A", "struct A::B"),
    "model/table.cpp": "const int kTable[] = {\n" + "  1,\n" * 200 + "};\n",
    "transport/schema/a-b.capnp":
        "@0xab;\nstruct A { a @0 :Bool; union { none @1 :Void; b @2 :Bool; } struct C { d @0 :Bool; } }\n",
    LIMITS: "#pragma once\n/// Why.\ninline constexpr auto kWaitMin = 3ms;\n"
            "inline constexpr auto kWaitMax = 4ms;\nstatic_assert(kWaitMin <= kWaitMax);\n"
            "inline constexpr int kChoicesMax = 128;  ///< `n` of one request\n",
}


@pytest.mark.parametrize("rule", [
    rules.include_rules, rules.costly_headers, rules.line_form, rules.file_length,
    rules.function_length, rules.header_guards, rules.banned_calls, rules.pure_machines,
    rules.machine_fields, rules.one_definition,
    rules.limit_reasons, rules.schemas, rules.words], ids=lambda rule: rule.__name__)
def test_rule_lets_pass(rule):
    assert list(rule(FINE)) == []
