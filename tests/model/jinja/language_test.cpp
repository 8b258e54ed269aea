#include <doctest/doctest.h>

#include "model/jinja/json.h"
#include "model/jinja/template.h"

namespace troupe::jinja {
namespace {

struct LanguageCase {
  std::string_view source, expected;
};

constexpr std::string_view kLanguageVariables = R"({
  "m": {"role": "user", "content": "hé\nyou", "items": 1, "z": null},
  "list": [3, 1, 2], "people": [{"n": "b", "a": 2}, {"n": "a", "a": 1}], "f": 2.0})";

Result<std::string> language_result(std::string_view source) {
  const auto parsed = Template::parse(source);
  if (!parsed) return parsed.error();
  const auto variables = value_from_json(kLanguageVariables, "variables");
  return parsed->render(*variables->dict(), 1'700'000'000);
}

constexpr LanguageCase kLanguageCases[] = {
    // White space around tags: trim_blocks and lstrip_blocks are on.
    {"a\n  {% if true %}\n  b\n  {% endif %}\nc\n", "a\n  b\nc"},
    {"a {%- if true -%} b {%+ endif %} c", "ab  c"},
    {"a\n  {{ 1 }}\nb", "a\n  1\nb"},
    {"a\n  {#- c -#}  \n b", "ab"},
    {"{% if true +%}\nx{% endif %}", "\nx"},
    {"{% raw %}{{ x }}{% endraw %}", "{{ x }}"},
    // Values as Python shows them.
    {"{{ [1, 2.0, 'a\\'b', none, true, (1,), {'k': 'é'}] }}",
     "[1, 2.0, \"a'b\", None, True, (1,), {'k': 'é'}]"},
    {"{{ 1e16 }} {{ 0.1 + 0.2 }} {{ 7 / 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 2 ** 10 }}",
     "1e+16 0.30000000000000004 3.5 -4 2 1024"},
    {"{{ 1 ~ 'a' ~ none }} {{ 'a' 'b' }} {{ 'ab' * 2 }} {{ [1] + [2] }}", "1aNone ab abab [1, 2]"},
    // Undefined values are empty until they are used.
    {"<{{ nothing }}{{ m.nothing }}>{{ nothing is defined }}{% for x in nothing %}x{% endfor %}",
     "<>False"},
    // Attributes, items, slices.
    {"{{ m.content[1] }}{{ m['content'][-3:] }}{{ list[::-1] }}{{ m.content | length }}",
     "éyou[2, 1, 3]6"},
    {"{{ m['items'] }} {{ m.items() | list | length }} {{ m.get('x', 4) }}", "1 4 4"},
    {"{{ m.__class__ is defined }}{{ m['__class__'] is defined }}{{ list.append is defined }}",
     "FalseFalseFalse"},
    // Loops.
    {"{% for x in list if x > 1 %}{{ loop.index }}/{{ loop.length }}:{{ x }}"
     "{{ ',' if not loop.last }}{% endfor %}",
     "1/2:3,2/2:2"},
    {"{% for k, v in {'a': 1}.items() %}{{ k }}{{ v }}{% endfor %}{% for x in [] %}{% else %}e{% "
     "endfor %}",
     "a1e"},
    {"{% for x in list %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% if x == 2 %}{% break %}"
     "{% endif %}{{ loop.nextitem }}{{ loop.previtem is defined }}{% endfor %}",
     "31False2"},
    // Scopes.
    {"{% set x = 1 %}{% for y in list %}{% set x = y %}{% endfor %}{{ x }}", "1"},
    {"{% set ns = namespace(x=1) %}{% for y in list %}{% set ns.x = y %}{% endfor %}{{ ns.x }}",
     "2"},
    {"{% if true %}{% set x = 5 %}{% endif %}{{ x }}", "5"},
    {"{% set x %} a {% endset %}[{{ x }}]{% with y = 2 %}{{ y }}{% endwith %}{{ y is defined }}",
     "[ a ]2False"},
    {"{% set a, b = (1, 2) %}{{ b }}{{ a }}", "21"},
    // Macros.
    {"{% macro f(a, b='B') %}{{ a }}{{ b }}{% endmacro %}{{ f(1) }}{{ f(1, b=2) }}", "1B12"},
    {"{% macro f() %}<{{ caller('x') }}>{% endmacro %}{% call(v) f() %}{{ v }}!{% endcall %}",
     "<x!>"},
    {"{% macro f(n) %}{{ n }}{{ f(n - 1) if n > 0 }}{% endmacro %}{{ f(3) }}", "3210"},
    {"{% macro f() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, a=2) }}", "(1,){'a': 2}"},
    {"{% generation %}a{% endgeneration %}", "a"},
    // Filters, tests, methods.
    {"{{ {'é': [1, none], 'b': 1.0} | tojson }}", "{\"é\": [1, null], \"b\": 1.0}"},
    {"{{ {'a': [1], 'e': {}} | tojson(indent=1) }}", "{\n \"a\": [\n  1\n ],\n \"e\": {}\n}"},
    {"{{ [1, 2] | tojson(separators=(',', ':')) }}{{ 'é' | tojson(ensure_ascii=true) }}",
     "[1,2]\"\\u00e9\""},
    {"{{ people | map(attribute='n') | join('+') }} {{ people | sort(attribute='a') | first }}",
     "b+a {'n': 'a', 'a': 1}"},
    {"{{ people | selectattr('a', 'gt', 1) | list | length }}{{ list | select('odd') | list }}",
     "1[3, 1]"},
    {"{{ ' x ' | trim }}{{ 'a b-c' | title }}{{ 'abc' | capitalize }}{{ '' | default('d', true) }}",
     "xA B-CAbcd"},
    {"{{ 'a\nb' | indent(2, true) }}", "  a\n  b"},
    {"{{ '%s=%05.1f' % ('a', 2) }} {{ '{:>3}|{x!r}'.format(1, x='y') }}", "a=002.0   1|'y'"},
    {"{{ 'a,b,c'.split(',', 1) }}{{ 'a,b,c'.rsplit(',', 1) }}{{ ' a  b '.split() }}",
     "['a', 'b,c']['a,b', 'c']['a', 'b']"},
    {"{{ 'xxaxx'.strip('x') }}{{ 'abc'.startswith(('b', 'a')) }}{{ "
     "'a</think>b'.split('</think>')[-1] }}",
     "aTrueb"},
    {"{{ 1 is number }}{{ m is mapping }}{{ 'a' is sequence }}{{ none is none }}{{ 2 is even }}"
     "{{ 'a' is in ['a'] }}{{ 3 is not divisibleby 2 }}",
     "TrueTrueTrueTrueTrueTrueTrue"},
    {"{{ 1 < 2 <= 2 != 3 }}{{ 'a' not in 'abc' }}{{ not false and 1 }}", "TrueFalse1"},
    {"{{ strftime_now('%Y-%m-%d') }}", "2023-11-14"},
};

struct LanguageError {
  std::string_view source, message;
};

constexpr LanguageError kLanguageErrors[] = {
    {"a\n{% if %}", "line 2"},
    {"{% for x in y %}", "endfor"},
    {"{{ 'a }}", "not closed"},
    {"{% include 'x' %}", "include"},
    {"{{ 1 + }}", "unexpected"},
    {"{% break %}", "outside a loop"},
    {"\n\n{{ nothing.more }}", "line 3: 'nothing' is undefined"},
    {"{{ m.nothing.more }}", "has no attribute 'nothing'"},
    {"{{ 1 + 'a' }}", "'int' + 'str'"},
    {"{{ 9223372036854775807 + 1 }}", "64 bits"},
    {"{{ 1 / 0 }}", "division by zero"},
    {"{{ 'a' | nofilter }}", "there is no filter 'nofilter'"},
    {"{{ nothing | tojson }}", "not JSON serializable"},
    {"{{ list.append(1) }}", "unsafe"},
    {"{{ m.__class__.x }}", "unsafe"},
    {"{% set m.x = 1 %}", "non-namespace"},
};

}  // namespace

TEST_CASE("the language is rendered as Jinja renders it") {
  for (const auto& [source, expected] : kLanguageCases) {
    CAPTURE(source);
    const auto text = language_result(source);
    REQUIRE_MESSAGE(text.ok(), text.error().message);
    CHECK(*text == expected);
  }
}

TEST_CASE("errors say where and what") {
  for (const auto& [source, message] : kLanguageErrors) {
    CAPTURE(source);
    const auto text = language_result(source);
    REQUIRE(!text.ok());
    CAPTURE(text.error().message);
    CHECK(text.error().message.find(message) != std::string::npos);
  }
  CHECK(language_result("{{ raise_exception('Own words') }}").error().message == "Own words");
}

}  // namespace troupe::jinja
