#include "model/tokenizer/published_patterns.h"

namespace troupe {

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define SPACES R"(|\s*[\r\n]+|\s+(?!\S)|\s+)"
#define UPPER R"(\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M})"
#define LOWER R"(\p{Ll}\p{Lm}\p{Lo}\p{M})"
// The words of GPT-4 and its followers; they differ in how many digits are a word.
#define CL100K(digits) \
  CONTRACTIONS R"(|[^\r\n\p{L}\p{N}]?\p{L}+|)" digits R"(| ?[^\s\p{L}\p{N}]+[\r\n]*)" SPACES
// Words with at most one change from capitals to small letters.
#define CASED(upper, lower, end)                                                                  \
  R"([^\r\n\p{L}\p{N}]?[)" upper "]*[" lower "]+" end R"(|[^\r\n\p{L}\p{N}]?[)" upper "]+[" lower \
  "]*" end

const std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

namespace {

constexpr std::string_view kDigitPattern = R"(\p{N})";
constexpr std::string_view kDigitsPattern = R"(\p{N}+)";
constexpr std::string_view kThreeDigitsPattern = R"(\p{N}{1,3})";
constexpr std::string_view kLlama3Pattern = CL100K(R"(\p{N}{1,3})");
constexpr std::string_view kQwen2Pattern = CL100K(R"(\p{N})");
constexpr std::string_view kQwen35Pattern =
    CONTRACTIONS R"(|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*)" SPACES;
constexpr std::string_view kO200kPattern =
    CASED(UPPER, LOWER, CONTRACTIONS "?") R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*)" SPACES;
constexpr std::string_view kTekkenPattern =
    CASED(UPPER, LOWER, "") R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*)" SPACES;
constexpr std::string_view kKimiPattern =
    R"([\p{Han}]+|)" CASED(UPPER R"(&&[^\p{Han}])", LOWER R"(&&[^\p{Han}])",
                           CONTRACTIONS "?") R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)" SPACES;
constexpr std::string_view kDeepSeekV3Words =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)"
    R"(| ?[\p{P}\p{S}]+[\r\n]*)" SPACES;
// Letters that have a case. As numbers: an editor may take some for their normal form.
constexpr std::string_view kDeepSeekLetters =
    "\\s?[A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293"
    "\u0295-\u02af\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c"
    "\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5"
    "\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77"
    "\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59"
    "\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc"
    "\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107"
    "\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139"
    "\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee"
    "\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e"
    "\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f"
    "\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2"
    "\U000118a0-\U000118df\U0001e900-\U0001e943]+";
constexpr std::string_view kDeepSeekMarks = R"(\s?[!-/:-~！-／：-～‘-‟　-。]+)";
constexpr std::string_view kDeepSeekCjk = "[一-龥ࠀ-一가-\uD7FF]+";
constexpr std::string_view kV3Cjk = "[一-龥぀-ゟ゠-ヿ]+";

struct Named {
  std::string_view name;
  PublishedPreTokenizer pre;
};

std::vector<Named> all_published() {
  const PublishedPreTokenizer gpt2{{kGpt2Pattern}};
  const PublishedPreTokenizer llama3{{kLlama3Pattern}, false, true, true};
  const PublishedPreTokenizer qwen2{{kQwen2Pattern}, true};
  const PublishedPreTokenizer deepseek_v3{{kThreeDigitsPattern, kV3Cjk, kDeepSeekV3Words}};
  const PublishedPreTokenizer o200k{{kO200kPattern}};
  return {
      {"gpt-2", gpt2},
      {"smollm", {{kDigitPattern, kGpt2Pattern}}},
      {"llama-bpe", llama3},
      {"llama3", llama3},
      {"llama-v3", llama3},
      {"qwen2", qwen2},
      {"deepseek-r1-qwen", qwen2},
      {"qwen35", {{kQwen35Pattern}, true}},
      {"glm4", {{kLlama3Pattern}}},
      {"chatglm-bpe", {{kLlama3Pattern}}},
      {"gpt-4o", o200k},
      {"llama4", o200k},
      {"tekken", {{kTekkenPattern}, false, true, true}},
      {"kimi-k2", {{kKimiPattern}, false, true}},
      {"deepseek-llm",
       {{"[\r\n]", kDeepSeekLetters, kDeepSeekMarks, R"(\s+$)", kDeepSeekCjk, kDigitsPattern}}},
      {"deepseek-coder", {{"[\r\n]", R"(\s?\p{L}+)", R"(\s?\p{P}+)", kDeepSeekCjk, kDigitPattern}}},
      {"deepseek-v3", deepseek_v3},
      {"hunyuan-dense", deepseek_v3},
  };
}

}  // namespace

std::optional<PublishedPreTokenizer> published_pre_tokenizer(std::string_view name) {
  for (const Named& named : all_published()) {
    if (named.name == name) return named.pre;
  }
  return std::nullopt;
}

std::string published_pre_tokenizer_names() {
  std::string names;
  for (const Named& named : all_published()) {
    names += (names.empty() ? "" : ", ") + std::string(named.name);
  }
  return names;
}

}  // namespace troupe
