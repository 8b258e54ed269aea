#include <doctest/doctest.h>

#include <chrono>
#include <string>

#include "model/jinja/context.h"
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
      {"{% if 0 %}" + times("{% elif 0 %}", 5000) + "{% endif %}", "branches"},
  };
  for (const auto& [source, why] : cases) {
    CAPTURE(source.substr(0, 80));
    const std::string message = refusal(source);
    CAPTURE(message);
    CHECK(message.find(why) != std::string::npos);
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
