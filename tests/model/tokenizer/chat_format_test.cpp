#include "model/chat/chat_format.h"
#include "tests/source_path.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

namespace troupe {
namespace {

constexpr const char* kBos = "<｜begin▁of▁sentence｜>";
constexpr const char* kEos = "<｜end▁of▁sentence｜>";

std::vector<ChatMessage> messages_of(const nlohmann::json& list) {
  std::vector<ChatMessage> messages;
  for (const auto& item : list) messages.push_back({item.at("role"), item.at("content")});
  return messages;
}

const std::vector<ChatMessage> kHello = {{"user", "x"}};

ChatFormat format_of(const std::string& text) {
  ChatTemplateFile file;
  file.text = text;
  file.tokens = {{"bos_token", kBos}, {"eos_token", kEos}};
  auto format = ChatFormat::make(file);
  REQUIRE_MESSAGE(format.ok(), format.error().message);
  return *format;
}

}  // namespace

TEST_CASE("chats are rendered as Jinja renders their templates") {
  std::ifstream file(testing::source_path("tests/model/tokenizer/chat_cases.json"));
  const auto cases = nlohmann::json::parse(file);
  REQUIRE(cases.size() >= 9);
  for (const auto& item : cases) {
    const auto format = format_of(item.at("template").get<std::string>());
    const bool thinks = item.at("family") == "deepseek-r1";
    CHECK(format.reasoning(kHello).style ==
          (thinks ? ReasoningStyle::kThink : ReasoningStyle::kNone));
    CHECK(format.reasoning(kHello).inside == item.at("opens_think").get<bool>());
    for (const auto& chat : item.at("chats")) {
      ChatOptions options;
      options.add_generation_prompt = chat.at("add_generation_prompt").get<bool>();
      const auto text = format.render(messages_of(chat.at("messages")), options);
      REQUIRE(text.ok());
      CHECK(*text == chat.at("expected").get<std::string>());
    }
  }
}

TEST_CASE("the demo's format is found in its folder") {
  const auto format = ChatFormat::load(testing::source_path("tools/demo/pocket-dictionary"));
  REQUIRE(format.ok());
  CHECK(format->reasoning(kHello).inside);
  const std::vector<ChatMessage> chat = {{"user", "What is brandy?"}};
  CHECK(*format->render(chat, {}) ==
        "<｜begin▁of▁sentence｜><｜User｜>What is brandy?<｜Assistant｜><think>\n");
}

TEST_CASE("a request's variables turn thinking on and off") {
  const auto format = format_of(
      "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}[assistant]"
      "{{ '<think>\n' if thinking is defined and thinking else '</think>' }}");
  ChatOptions options;
  CHECK(*format.render(kHello, options) == "[user]x[assistant]</think>");
  CHECK(!format.reasoning(kHello).inside);
  options.template_kwargs = R"({"thinking": true})";
  CHECK(*format.render(kHello, options) == "[user]x[assistant]<think>\n");
  CHECK(format.reasoning(kHello, options).inside);
  for (const char* bad : {"[1]", "{", R"({"messages": []})", R"({"a": 1, "a": 2})",
                          R"({"raise_exception": 1})", R"({"bos_token": ""})"}) {
    options.template_kwargs = bad;
    const auto refused = format.render(kHello, options);
    REQUIRE(!refused.ok());
    CHECK(refused.error().message.starts_with("chat_template_kwargs: "));
  }
}

TEST_CASE("a message goes on where a template shows its end") {
  struct Case {
    const char *name, *text, *content, *prompt;  // No prompt: it is refused.
  };
  const char* const plain =
      "{% for m in messages %}[{{ m.role }}]{{ m.content }}</s>{% endfor %}"
      "{% if add_generation_prompt %}[assistant]{% endif %}";
  const char* const trims =
      "{% for m in messages %}[{{ m.role }}]\n{{ m.content | trim }}</s>{% endfor %}";
  const char* const hides = "{% for m in messages %}{{ m.role }}{% endfor %}";
  const Case cases[] = {
      {"plain", plain, "a b ", "[user]x</s>[assistant]a b "},
      {"repeated", plain, "x", "[user]x</s>[assistant]x"},
      {"empty", plain, "", "[user]x</s>[assistant]"},
      {"trims", trims, " a b \n", "[user]\nx</s>[assistant]\na b"},
      {"trims nothing", trims, "", "[user]\nx</s>[assistant]\n"},
      {"hides", hides, "a", nullptr},
  };
  ChatOptions options;
  options.continue_final_message = true;
  for (const Case& c : cases) {
    CAPTURE(c.name);
    const std::vector<ChatMessage> chat = {{"user", "x"}, {"assistant", c.content}};
    const auto text = format_of(c.text).render(chat, options);
    REQUIRE(text.ok() == (c.prompt != nullptr));
    if (text.ok()) CHECK(*text == c.prompt);
    if (!text.ok()) CHECK(text.error().message.starts_with("messages"));
  }
  // A model without thoughts, and one that has turned them off, cannot go on with one.
  std::vector<ChatMessage> thought = {{"user", "x"}, {"assistant", ""}};
  thought[1].reasoning_content = "hm";
  CHECK(!format_of(plain).render(thought, options).ok());
  const auto thinks = format_of(
      "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}[assistant]"
      "{{ '</think>' if thinking is defined and not thinking else '' }}");
  CHECK(*thinks.render(thought, options) == "[user]x[assistant]<think>hm");
  options.template_kwargs = R"({"thinking": false})";
  CHECK(!thinks.render(thought, options).ok());
}

TEST_CASE("where an answer begins is what the end of its prompt says") {
  using Messages = std::vector<ChatMessage>;
  enum Begin { kOpen, kInside, kOver };
  struct Case {
    std::string name, text;
    Messages messages;
    Begin begins;
    const char* kwargs = "";
    const char* tools = "";
    bool adds = true, continues = false;
  };
  // Thinking is on unless a message, a variable or a tool says otherwise.
  const std::string by_message =
      "{% set t = namespace(on=true) %}{% for m in messages %}[{{ m.role }}]{{ m.content }}"
      "{% if '/no_think' in m.content or tools or off %}{% set t.on = false %}{% endif %}"
      "{% endfor %}{% if add_generation_prompt %}[assistant]"
      "{{ '<think>\n' if t.on else '<think>\n\n</think>\n\n' }}{% endif %}";
  // As DeepSeek-V3.1's, which thinks on with a message that is the beginning of a thought.
  const std::string by_prefix =
      "{% for m in messages %}[{{ m.role }}]{{ ('<think>' if thinking else '</think>') "
      "if m.prefix }}{{ m.content }}{% endfor %}";
  const auto answer = [](const char* content, const char* thought = "", const char* more = "") {
    ChatMessage message{"assistant", content};
    message.reasoning_content = thought;
    message.more = more;
    return Messages{{"user", "x"}, message};
  };
  const auto parts = [](const char* content) {
    ChatMessage message{"assistant", ""};
    message.parts = {"<think>a", content};
    return Messages{{"user", "x"}, message};
  };
  const char* const prefix = R"({"prefix": true})";
  const Case cases[] = {
      {"nothing said", by_message, kHello, kInside},
      {"a message", by_message, {{"system", "/no_think"}, {"user", "x"}}, kOver},
      {"a variable", by_message, kHello, kOver, R"({"off": true})"},
      {"tools", by_message, kHello, kOver, "",
       R"([{"type": "function", "function": {"name": "f"}}])"},
      {"a tag in a message", by_message, {{"user", "<think> /no_think"}}, kOver},
      {"no generation prompt", by_message, kHello, kOpen, "", "", false},
      {"goes on", by_message, answer("x"), kOver, "", "", false, true},
      {"goes on with a thought", by_message, answer("", "x"), kInside, "", "", false, true},
      {"goes on behind one", by_message, answer("y", "x"), kOver, "", "", false, true},
      {"goes on with a tag", by_message, answer("<think>x"), kInside, "", "", false, true},
      {"goes on with both", by_message, answer("<think>x</think>y"), kOver, "", "", false, true},
      {"goes on with parts", by_message, parts("b"), kInside, "", "", false, true},
      {"goes on with other parts", by_message, parts("</think>"), kOver, "", "", false, true},
      {"the template opens one", by_prefix, answer("a", "", prefix), kInside,
       R"({"thinking": true})", "", false, true},
      {"the template closes one", by_prefix, answer("a", "", prefix), kOver, "", "", false, true},
      {"what it refuses", "<think>{{ raise_exception('no') }}", kHello, kOpen},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    ChatOptions options;
    options.template_kwargs = c.kwargs;
    options.tools = c.tools;
    options.add_generation_prompt = c.adds;
    options.continue_final_message = c.continues;
    const ReasoningStart start = format_of(c.text).reasoning(c.messages, options);
    CHECK(start.style == ReasoningStyle::kThink);
    CHECK(start.inside == (c.begins == kInside));
    CHECK(start.over == (c.begins == kOver));
  }
}

TEST_CASE("what a message has reaches the template") {
  const std::string shows =
      "{% for m in messages %}[{{ m.role }}|{{ m.get('name', '-') }}|"
      "{{ m.get('reasoning_content', '-') }}|{{ m.get('plan', '-') | tojson }}|"
      "{% if m.content is string %}{{ m.content }}{% else %}"
      "{% for p in m.content %}<{{ p.type }} {{ p.text }}>{% endfor %}{% endif %}]{% endfor %}";
  ChatMessage first{"developer", ""};
  first.parts = {"a", "b"};
  first.name = "n";
  ChatMessage second{"assistant", "c"};
  second.reasoning_content = "t";
  second.more = R"({"plan": {"z": 1, "a": [null]}, "role": "user"})";
  CHECK(*format_of(shows).render(std::vector{first, second}, {}) ==
        R"([developer|n|-|"-"|<text a><text b>][assistant|-|t|{"z": 1, "a": [null]}|c])");
  for (const char* bad : {"[1]", "{", R"({"a": 1, "a": 2})"}) {
    second.more = bad;
    const auto refused = format_of(shows).render(std::vector{first, second}, {});
    REQUIRE(!refused.ok());
    CHECK(refused.error().message.starts_with("messages[1]"));
  }
}

TEST_CASE("a template is given no more than it takes") {
  struct Case {
    std::string name, text, prompt;
  };
  const char* const roles = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}";
  const Case cases[] = {
      {"texts alone", roles, "[developer]d[user]a\nb"},
      {"it adds to them", "{% for m in messages %}[{{ m.role }}]{{ m.content + '' }}{% endfor %}",
       "[developer]d[user]a\nb"},
      {"it would show a list as JSON",
       "{% for m in messages %}[{{ m.role }}]{{ m.content | tojson }}{% endfor %}",
       R"([developer]"d"[user]"a\nb")"},
      {"the first of parts",
       "{% for m in messages %}[{{ m.content if m.content is string else m.content[0].text }}]"
       "{% endfor %}",
       "[d][a\nb]"},
      {"parts of some roles",
       "{% for m in messages %}{% if m.role == 'user' and m.content is not string %}"
       "{{ m.content | map(attribute='text') | join('+') }}{% else %}{{ m.content }}{% endif %}"
       "{% endfor %}",
       "da+b"},
      {"no developer",
       "{% for m in messages %}{% if m.role in ['system', 'user'] %}[{{ m.role }}]{{ m.content }}"
       "{% endif %}{% endfor %}",
       "[system]d[user]a\nb"},
      {"it refuses one",
       "{% for m in messages %}{% if m.role == 'developer' %}{{ raise_exception('no') }}{% endif %}"
       "[{{ m.role }}]{{ m.content }}{% endfor %}",
       "[system]d[user]a\nb"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    std::vector<ChatMessage> chat = {{"developer", "d"}, {"user", ""}};
    chat[1].parts = {"a", "b"};
    CHECK(*format_of(c.text).render(chat, {}) == c.prompt);
  }
}

TEST_CASE("channels are told by the template") {
  const auto format = format_of("<|start|>assistant<|channel|>{{ messages | length }}");
  CHECK(format.reasoning(kHello).style == ReasoningStyle::kHarmony);
}

TEST_CASE("tools go to the template for them") {
  ChatTemplateFile file;
  file.text = "none: {{ tools is none }}";
  file.tool_use = "{{ tools[0].function | tojson }}";
  const auto format = ChatFormat::make(file);
  REQUIRE(format.ok());
  ChatOptions options;
  CHECK(*format->render(kHello, options) == "none: True");
  options.tools = R"([{"function": {"name": "f", "a": "é"}}])";
  CHECK(*format->render(kHello, options) == R"({"name": "f", "a": "é"})");
}

TEST_CASE("what a template refuses is said in its own words") {
  const auto format = format_of("{{ raise_exception('Only one user may speak.') }}");
  const auto text = format.render(kHello, {});
  REQUIRE(!text.ok());
  CHECK(text.error().code == ErrorCode::kInvalidArgument);
  CHECK(text.error().message == "Only one user may speak.");
}

TEST_CASE("messages that a format cannot carry are refused") {
  const auto format = ChatFormat::load(testing::source_path("tools/demo/pocket-dictionary"));
  REQUIRE(format.ok());
  CHECK(!format->render({}, {}).ok());
  const std::vector<ChatMessage> chat = {{"user", "x"}, {"wizard", "y"}};
  const auto text = format->render(chat, {});
  REQUIRE(!text.ok());
  CHECK(text.error().message.find("messages[1].role is \"wizard\"") != std::string::npos);
}

TEST_CASE("a checkpoint's template is found in each of its places") {
  const auto dir =
      std::filesystem::temp_directory_path() / ("troupe_chat_" + std::to_string(::getpid()));
  std::filesystem::create_directories(dir);
  const auto write = [&](const char* name, const std::string& text) {
    std::ofstream(dir / name) << text;
  };
  const std::string v3 = "{{bos_token}}<｜User｜>{{messages[0].content}}<｜Assistant｜>";
  write("tokenizer_config.json", "{}");
  const auto none = ChatFormat::load(dir);
  REQUIRE(!none.ok());
  CHECK(none.error().code == ErrorCode::kNotFound);

  const nlohmann::json named = {
      {"chat_template",
       {{{"name", "rag"}, {"template", "x"}}, {{"name", "default"}, {"template", v3}}}},
      {"bos_token", {{"content", "B"}}}};
  write("tokenizer_config.json", named.dump());
  const auto from_list = ChatFormat::load(dir);
  REQUIRE_MESSAGE(from_list.ok(), from_list.error().message);
  CHECK(*from_list->render(kHello, {}) == "B<｜User｜>x<｜Assistant｜>");

  for (const char* bad : {"[]", "{\"chat_template\": 3}", "{\"chat_template\": [3]}", "{"}) {
    write("tokenizer_config.json", bad);
    const auto refused = ChatFormat::load(dir);
    REQUIRE(!refused.ok());
    CHECK(refused.error().message.find("tokenizer_config.json") != std::string::npos);
  }
  write("tokenizer_config.json", R"({"bos_token": "B"})");
  write("chat_template.json", nlohmann::json{{"chat_template", v3 + "json"}}.dump());
  CHECK(*ChatFormat::load(dir)->render(kHello, {}) == "B<｜User｜>x<｜Assistant｜>json");
  write("chat_template.jinja", v3);
  CHECK(*ChatFormat::load(dir)->render(kHello, {}) == "B<｜User｜>x<｜Assistant｜>");
  std::filesystem::create_directories(dir / "additional_chat_templates");
  write("additional_chat_templates/tool_use.jinja", "{{ tools | length }} tools");
  ChatOptions with_tools;
  with_tools.tools = R"([{"function": {"name": "f"}}])";
  CHECK(*ChatFormat::load(dir)->render(kHello, {}) == "B<｜User｜>x<｜Assistant｜>");
  CHECK(*ChatFormat::load(dir)->render(kHello, with_tools) == "1 tools");
  write("chat_template.jinja", "{% if %}");
  const auto unreadable = ChatFormat::load(dir);
  REQUIRE(!unreadable.ok());
  CHECK(unreadable.error().message.find("line 1") != std::string::npos);
  std::filesystem::remove_all(dir);
}

}  // namespace troupe
