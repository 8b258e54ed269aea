#include "model/chat/chat_format.h"

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

}  // namespace

TEST_CASE("chats are rendered as their templates render them") {
  std::ifstream file(TROUPE_SOURCE_DIR "/tests/model/tokenizer/chat_cases.json");
  const auto cases = nlohmann::json::parse(file);
  REQUIRE(cases.size() >= 9);
  for (const auto& item : cases) {
    const auto format = ChatFormat::detect(item.at("template").get<std::string>(), kBos, kEos);
    REQUIRE_MESSAGE(format.ok(), format.error().message);
    CHECK(format->name() == item.at("family").get<std::string>());
    CHECK(format->reasoning() == (format->name() == "deepseek-r1"));
    CHECK(format->opens_think() == item.at("opens_think").get<bool>());
    for (const auto& chat : item.at("chats")) {
      const auto text = format->render(messages_of(chat.at("messages")),
                                       chat.at("add_generation_prompt").get<bool>());
      REQUIRE(text.ok());
      CHECK(*text == chat.at("expected").get<std::string>());
    }
  }
}

TEST_CASE("the demo's format is found in its folder") {
  const auto format = ChatFormat::load(TROUPE_SOURCE_DIR "/tools/demo/pocket-dictionary");
  REQUIRE(format.ok());
  CHECK(format->name() == "deepseek-r1");
  CHECK(format->opens_think());
  const std::vector<ChatMessage> chat = {{"user", "What is brandy?"}};
  CHECK(*format->render(chat, true) ==
        "<｜begin▁of▁sentence｜><｜User｜>What is brandy?<｜Assistant｜><think>\n");
}

TEST_CASE("the layout of a template does not matter") {
  const auto format = ChatFormat::detect(
      "{# don't #}\n{{ bos_token }}\n{% for m in messages %}\n {{ \"<｜User｜>\"  +  m.content }} "
      "it's\n"
      "{{ '<｜Assistant｜>' + m.content + \"<｜end▁of▁sentence｜>\" }}{% endfor %}"
      "{{ '<｜Assistant｜>' + '' }}",
      kBos, kEos);
  REQUIRE(format.ok());
  CHECK(format->name() == "deepseek-v3");
}

TEST_CASE("templates that are not known are refused with the names of those that are") {
  const std::string v31 =
      "{% if not thinking is defined %}{% set thinking = false %}{% endif %}"
      "{{'<｜User｜>' + "
      "m['content']}}{{'<｜Assistant｜>'}}{{'</think>'}}{{'<｜end▁of▁sentence｜>'}}";
  for (const std::string& text :
       {std::string(), std::string("{{'<|im_start|>' + message.role}}"), v31, std::string("{{ 'un"),
        std::string("{# open"),
        std::string("{{'<｜User｜>'}}{{'<｜Assistant｜></think>'}}{{'<｜end▁of▁sentence｜>'}}")}) {
    const auto format = ChatFormat::detect(text, kBos, kEos);
    REQUIRE(!format.ok());
    CHECK(format.error().message.find("DeepSeek-V3") != std::string::npos);
    CHECK(format.error().message.find("DeepSeek-R1") != std::string::npos);
  }
}

TEST_CASE("messages that a format cannot carry are refused") {
  const auto format = ChatFormat::load(TROUPE_SOURCE_DIR "/tools/demo/pocket-dictionary");
  REQUIRE(format.ok());
  CHECK(!format->render({}, true).ok());
  const std::vector<ChatMessage> chat = {{"user", "x"}, {"tool", "y"}};
  const auto text = format->render(chat, true);
  REQUIRE(!text.ok());
  CHECK(text.error().message.find("messages[1].role is \"tool\"") != std::string::npos);
}

TEST_CASE("a checkpoint's template is found in each of its places") {
  const auto dir =
      std::filesystem::temp_directory_path() / ("troupe_chat_" + std::to_string(::getpid()));
  std::filesystem::create_directories(dir);
  const auto write = [&](const char* name, const std::string& text) {
    std::ofstream(dir / name) << text;
  };
  const std::string v3 =
      "{{'<｜User｜>' + m.content}}{{'<｜Assistant｜>' + m.content + '<｜end▁of▁sentence｜>'}}";
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
  const std::vector<ChatMessage> chat = {{"user", "x"}};
  CHECK(*from_list->render(chat, true) == "B<｜User｜>x<｜Assistant｜>");

  for (const char* bad : {"[]", "{\"chat_template\": 3}", "{\"chat_template\": [3]}", "{"}) {
    write("tokenizer_config.json", bad);
    const auto refused = ChatFormat::load(dir);
    REQUIRE(!refused.ok());
    CHECK(refused.error().message.find("tokenizer_config.json") != std::string::npos);
  }
  write("tokenizer_config.json", "{}");
  write("chat_template.jinja", v3);
  CHECK(ChatFormat::load(dir).ok());
  std::filesystem::remove_all(dir);
}

}  // namespace troupe
