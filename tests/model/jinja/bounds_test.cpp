#include <doctest/doctest.h>

#include <chrono>
#include <string>

#include "model/jinja/context.h"
#include "model/jinja/interpreter.h"
#include "model/jinja/parser.h"
#include "model/jinja/template.h"
#include "tests/promises.h"

namespace troupe::jinja {
namespace {

std::string times(std::string_view text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += text;
  return out;
}

/// What a hostile template is refused with. Without a bound most of these would never end.
std::string refusal(const std::string& source) {
  const auto begun = std::chrono::steady_clock::now();
  const auto parsed = Template::parse(source);
  const auto text = parsed ? parsed->render({}, 0) : Result<std::string>(parsed.error());
  promised("a hostile template is refused", std::chrono::steady_clock::now() - begun,
           std::chrono::seconds(10));
  return text ? "rendered" : text.error().message;
}

/// What fails with so many steps.
std::string trouble_within(std::uint64_t steps, const std::string& source) {
  auto block = Parser(std::move(tokenize(source)).value()).run();
  REQUIRE(block.ok());
  Context context({.steps = steps, .bytes = 8u << 20});
  Interpreter(context, {}).run(*block);
  return context.failed() ? context.status().error().message : "rendered";
}

}  // namespace

TEST_CASE("hostile templates end soon, with an error that says why") {
  const std::string loop = "{% for a in range(99999) %}";
  const std::pair<std::string, std::string_view> cases[] = {
      {std::string(kTemplateBytesMax + 1, 'x'), "bytes"},
      {"{{ '\xff' }}", "not UTF-8"},
      {times(loop, 4) + "{{ a }}" + times("{% endfor %}", 4), "too many steps"},
      {"{{ range(10**9) }}", "range()"},
      {"{{ range(0, 10**18, 10**15) | list | length }}{{ 'a' * 10**12 }}", "too much"},
      {"{{ [1] * 10**12 }}", "too much"},
      {"{% set ns = namespace(x='aaaa') %}" + loop + "{% set ns.x = ns.x + ns.x %}{% endfor %}",
       "too much"},
      {"{% set ns = namespace(x=[1]) %}" + loop + "{% set ns.x = ns.x + ns.x %}{% endfor %}",
       "too"},
      {"{% set ns = namespace(x=1) %}" + loop + "{% set ns.x = [ns.x] %}{% endfor %}", "nested"},
      {"{% set ns = namespace(x=1) %}" + loop + "{% set ns.x = {'a': ns.x} %}{% endfor %}",
       "nested"},
      {"{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}", "end"},
      {"{% macro f(x) %}{{ f(x) }}{{ f(x) }}{% endmacro %}{{ f(1) }}", "end"},
      {"{{ '%99999999d' % 1 }}", "wide"},
      {"{{ '{:99999999}'.format(1) }}", "wide"},
      {"{{ ('a' * 1000000).replace('a', 'b' * 1000000) }}", "too much"},
      {"{{ (('a' * 1000000) | list) * 100 }}", "too"},
      {"{{ 10 ** 10 ** 10 }}", "64 bits"},
      {"{% set ns = namespace(x=1) %}" + loop + "{% set ns.x = [ns.x].count %}{% endfor %}",
       "nested too deeply"},
      {"{% set ns = namespace(x=1) %}" + loop +
           "{% for b in [ns.x] %}{% set ns.x = loop %}{% endfor %}{% endfor %}",
       "nested too deeply"},
      {"{% macro m() %}{% set ns.x = varargs %}{% endmacro %}{% set ns = namespace(x=1) %}" + loop +
           "{{ m(ns.x) }}{% endfor %}",
       "nested too deeply"},
      {"{% set a = 'a' * 2000000 %}{% set b = 'a' * 1000000 ~ 'b' %}{{ b in a }}", "steps"},
      {"{% set a = 'a' * 2000000 %}{{ a.find('a' * 1000000 ~ 'b') }}", "steps"},
      {"{% set a = 'a' * 2000000 %}{{ a.rfind('b' ~ 'a' * 1000000) }}", "steps"},
      {"{% set a = 'a' * 2000000 %}{{ a.count('a' * 1000000 ~ 'b') }}", "steps"},
      {"{% set a = 'a' * 2000000 %}{{ a.replace('a' * 1000000 ~ 'b', '') }}", "steps"},
      {"{% set a = 'a' * 2000000 %}{{ a.split('a' * 1000000 ~ 'b') }}", "steps"},
      {"{% set a = 'a' * 2000000 %}{{ a.partition('a' * 1000000 ~ 'b') }}", "steps"},
      {"{% set a = 'a' * 2000000 %}{{ a.strip('b' * 1000000 ~ 'a') }}", "steps"},
      {"{{ " + times("(", 5000) + "1" + times(")", 5000) + " }}", "nested too deeply"},
      {"{{ " + times("[", 5000) + times("]", 5000) + " }}", "nested too deeply"},
      {"{{ 1" + times(" + 1", 5000) + " }}", "nested too deeply"},
      {"{{ a" + times(".b", 5000) + " }}", "nested too deeply"},
      {"{{ " + times("not ", 5000) + "1 }}", "nested too deeply"},
      {"{{ " + times("-", 5000) + "1 }}", "nested too deeply"},
      {times("{% if 1 %}", 5000) + times("{% endif %}", 5000), "nested too deeply"},
      {times("{% if 0 %}{% else %}", 300) + times("{% endif %}", 300), "nested too deeply"},
      {"{% macro f(k) %}" + times("{% for x in [1] %}", 190) + "{{ f(k - 1) if k }}" +
           times("{% endfor %}", 190) + "{% endmacro %}{{ f(90) }}",
       "nested too deeply"},
      {"{% set ns = namespace(x=1) %}" + loop +
           "{% for b in [ns.x] if true %}{% set ns.x = loop %}{% endfor %}{% endfor %}",
       "nested too deeply"},
      {"{{ " + std::string(kNameBytesMax + 1, 'a') + " }}", "too long"},
  };
  for (const auto& [source, why] : cases) {
    CAPTURE(source.substr(0, 80));
    const std::string message = refusal(source);
    CAPTURE(message);
    CHECK(message.find(why) != std::string::npos);
  }
}

TEST_CASE("branches of an if are beside each other, however many") {
  const auto parsed =
      Template::parse(times("{% if 0 %}" + times("{% elif 0 %}", 300) + "{% else %}", 100) + "x" +
                      times("{% endif %}", 100) + "{% if 0 %}" + times("{% elif 0 %}a", 5000) +
                      "{% elif 1 %}y{% elif 1 %}b{% else %}c{% endif %}");
  REQUIRE(parsed.ok());
  CHECK(*parsed->render({}, 0) == "xy");
}

TEST_CASE("whatever walks or copies a value pays for its size") {
  // Of megabytes, which a template makes once: a loop that uses them again and again must end
  // before its turns do.
  const std::string values =
      "{% set s = 'x' * 300000 %}{% set s2 = 'x' * 300000 %}{% set b = ' ' * 300000 %}"
      "{% set l = range(9000) %}{% set empty = [''] * 9000 %}{% set t = (s, s) %}"
      "{% set twins = [['a', 1]] * 9000 %}{% set d = {'a': 1} %}{% set ns = namespace() %}"
      "{% set ns.x = ns %}{% set path = 'x.' * 90000 ~ 'x' %}"
      "{% macro m() %}{{ varargs | length }}{% endmacro %}";
  for (const char* use :
       {// names and keys
        "d.get(s)", "s in d", "d[s]", "ns[s]", "ns | attr(s)", "s[s]", "{}.get(t)", "{s: 1}",
        "{t: 1}", "dict(twins)", "[ns] | map(attribute=path) | list", "[t] | unique | list",
        "('{0.' ~ path ~ '}').format(ns)", "('%(' ~ s ~ ')s') % {s: 1}",
        // comparisons
        "s == s2", "s < s2", "s <= s2", "t == (s2, s2)", "{'a': s} == {'a': s2}", "s in s2",
        "s in l", "l == range(9000)", "[s, s2] | sort", "[s, s2] | max", "s is eq s2",
        "s is sameas s2", "l.count(-1)", "l.index(8999)", "s.startswith(s2)", "s.endswith(s2)",
        "[{'a': s}] | groupby('a')",
        // texts read
        "b | int", "b | float", "s | int", "s | float", "b.strip()", "b | trim", "s.strip('x')",
        "''.strip(s) ~ s", "s.find('y')", "s.count('x')", "s.isupper()", "s.isalpha()",
        "s is upper", "s | length", "s | wordcount", "s[1]", "s[-1]", "s | first", "s | last",
        "s.removeprefix(s2)", "s.removesuffix(s2)", "s.partition('y')", "s % ()", "s.format()",
        // texts made
        "s | upper", "s.title()", "s | title", "s | capitalize", "s | escape", "s | tojson",
        "s | string", "s | center(9)", "s | truncate(9)", "s | indent", "s.replace('', 'z', 0)",
        "s.replace('x', 'z', 0)", "s ~ s", "s + s", "'%s' % s", "'{}'.format(s)", "s[::2]",
        "s | reverse", "s.split()", "s.split('y')", "s.splitlines()", "s | list", "[s] | string",
        "t | string", "d[s] | default(s) ~ s", "[1] | tojson(indent=s)",
        "[1, 2] | tojson(separators=(s, ':'))", "{1: 2} | tojson(separators=(',', s))",
        // lists
        "''.join(empty)", "empty | join", "empty | select | list", "l + l", "l[1:] | length",
        "l | sum", "l | max", "l | sort", "l | unique | list", "l | reverse | list",
        "l | batch(3) | list", "[] | slice(9000) | list", "l | map('string') | list", "m(*l)",
        "[1] * 100000", "range(9000)", "l | string", "namespace(**dict(twins))",
        // numbers
        "'%.100f' % 1e308", "'{:.100f}'.format(1e308)", "1e308 | round(18)",
        "strftime_now('%c' * 90)"}) {
    CAPTURE(std::string(use));
    const std::string message =
        trouble_within(100'000, values + "{% for i in range(2000) %}{% if (" + use +
                                    ") is none %}{% endif %}{% endfor %}");
    CAPTURE(message);
    const bool refused = message.find("too many steps") != std::string::npos ||
                         message.find("too much") != std::string::npos;
    CHECK(refused);
  }
}

TEST_CASE("tuples that share their parts are as long as they look") {
  const std::string doubled =
      "{% set ns = namespace(a=(1,), b=(1,)) %}{% for i in range(40) %}"
      "{% set ns.a = (ns.a, ns.a) %}{% set ns.b = (ns.b, ns.b) %}{% endfor %}";
  for (const char* use :
       {"{}.get(ns.a)", "ns.a in {}", "{ns.a: 1}", "dict([[ns.a, 1]])", "ns.a == ns.b",
        "ns.a < ns.b", "ns.a is eq ns.b", "ns.a in [ns.b]", "[ns.a].index(ns.b)",
        "{'a': ns.a} == {'a': ns.b}", "[ns.a, ns.b] | sort", "[ns.a, ns.b] | max",
        "[ns.a] | unique | list", "ns.a | string", "ns.a | tojson", "ns.a ~ ''", "[ns.a] | join",
        "'%s' % (ns.a,)", "'{}'.format(ns.a)"}) {
    CAPTURE(std::string(use));
    CHECK(refusal(doubled + "{{ " + use + " }}").find("too") != std::string::npos);
  }
}

TEST_CASE("turns, scopes and parameters are passed over for steps") {
  const std::string row = "{% set r = range(99999) %}";
  std::string parameters;
  for (int i = 0; i < 20'000; ++i) parameters += "p" + std::to_string(i) + "=0,";
  const std::string macro = "{% macro m(" + parameters + ") %}{% endmacro %}";
  const std::string cases[] = {
      row + "{% for a in r %}{% for b in r %}{% endfor %}{% endfor %}",
      row + "{% for a in r %}{% for b in r if 0 %}{% endfor %}{% endfor %}",
      row + times("{% for x in [1] %}", 190) + "{% for a in r %}{{ r and r and r }}{% endfor %}" +
          times("{% endfor %}", 190),
      row + "{% for a in r %}{% macro m() %}{% endmacro %}{% endfor %}",
      macro + "{% for a in range(9999) %}{{ m() }}{% endfor %}",
      "{% macro m() %}{{ varargs | length }}{% endmacro %}" + row + "{{ m(" + times("*r,", 9000) +
          ") }}",
  };
  for (const std::string& source : cases) {
    CAPTURE(source.substr(0, 80));
    const std::string message = refusal(source);
    CAPTURE(message);
    CHECK(message.find("too m") != std::string::npos);
  }
}

TEST_CASE("a long conversation is no hostile one") {
  // As templates that tell thoughts from answers look at each message, several times over.
  const auto parsed = Template::parse(
      "{% for m in messages %}{% set c = m.content | trim %}"
      "{% if c.startswith('<think>') and '</think>' in c %}"
      "{% set c = c.split('</think>')[-1].lstrip('\n').rstrip() %}{% endif %}"
      "{{ m.role | upper }}{{ c.replace('a', 'b') | trim }}{{ c | tojson }}{% endfor %}");
  REQUIRE(parsed.ok());
  for (const auto& [count, size] : {std::pair(10, 1'000'000), std::pair(5'000, 200)}) {
    Values messages;
    for (int i = 0; i < count; ++i) {
      Dict message;
      message.set("role", "user");
      message.set("content",
                  "<think>" + times("a ", size / 4) + "</think>\n" + times("é", size / 4) + "  ");
      messages.emplace_back(std::move(message));
    }
    Dict variables;
    variables.set("messages", std::move(messages));
    const auto text = parsed->render(variables, 0);
    CHECK_MESSAGE(text.ok(), text.error().message);
  }
}

TEST_CASE("a namespace that holds itself is given back") {
  CHECK(refusal("{% set ns = namespace() %}{% set ns.x = [ns] %}{% set ns.y = ns %}") ==
        "rendered");
}

TEST_CASE("a long chain of namespaces is given back without a deep stack") {
  CHECK(refusal("{% set ns = namespace() %}{% for i in range(20000) %}"
                "{% set ns.x = namespace(x=ns.x) %}{% endfor %}") == "rendered");
}

}  // namespace troupe::jinja
