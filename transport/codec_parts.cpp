#include "runtime/hidden_limits.h"
#include "transport/codec_parts.h"

#include <capnp/serialize.h>
#include <kj/io.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "transport/utf8.h"

namespace troupe::transport {
namespace {

/// The largest expansion of an honest message is that of many short lists of structs; beyond it a
/// list's count is a lie about its bytes.
constexpr std::size_t kExpansionMax = 32;
constexpr std::size_t kBudgetBytesMin = 64u << 10;

static_assert(wire::NAME_BYTES_MAX == limits::kNameBytesMax);

std::string_view view(capnp::Text::Reader text) { return {text.begin(), text.size()}; }

const char* name_fault(std::string_view text) {
  if (text.size() > wire::NAME_BYTES_MAX) return " is too long";
  if (text.find('\0') != text.npos) return " has a zero byte";
  if (!is_utf8(text)) return " is not UTF-8";
  return nullptr;
}

float finite(In& in, float value, float low, float high, const char* what) {
  return in.in_range(value, low, high, what);
}

/// Its bits say whether it is zero: a thread whose denormals are zero would not.
float positive(In& in, float value, float high, const char* what) {
  in.require(std::bit_cast<std::uint32_t>(value) != 0, "a number that must not be zero is");
  return finite(in, value, 0, high, what);
}

/// Rounding may lift the log-probability of a certain token a little above zero.
float logprob(In& in, float value) {
  in.require(!std::isnan(value) && value <= 1e-3f, "a log-probability is above zero or no number");
  return value;
}

}  // namespace

void Out::fail(std::string reason) {
  if (!fault_) fault_ = std::move(reason);
}

capnp::Text::Reader Out::name(const std::string& text, const char* what) {
  if (const char* fault = name_fault(text)) {
    fail(std::string(what) + fault);
    return {};
  }
  return {text.c_str(), text.size()};
}

capnp::Text::Reader Out::text(const std::string& text, const char* what) {
  if (text.size() > limits::kControlFrameBytesMax || !is_utf8(text)) {
    fail(std::string(what) + " is too long or not UTF-8");
    return {};
  }
  return {text.c_str(), text.size()};
}

capnp::Text::Reader Out::sentence(const std::string& text) {
  if (text.size() <= wire::SENTENCE_BYTES_MAX && is_utf8(text)) return {text.c_str(), text.size()};
  repaired_.push_back(repair_utf8(text, wire::SENTENCE_BYTES_MAX));
  return {repaired_.back().c_str(), repaired_.back().size()};
}

In::In(std::size_t input_bytes, const Payload& payload)
    : payload_(payload), budget_bytes_(kBudgetBytesMin + kExpansionMax * input_bytes) {}

void In::fail(std::string reason) {
  if (!fault_) fault_ = std::move(reason);
}

bool In::take(std::size_t count, std::size_t element_bytes) {
  if (!ok()) return false;
  if (count > budget_bytes_ / element_bytes) {
    fail("a list claims more elements than the message has room for");
    return false;
  }
  budget_bytes_ -= count * element_bytes;
  return true;
}

std::string In::name(capnp::Text::Reader text, const char* what) {
  if (const char* fault = name_fault(view(text))) {
    fail(std::string(what) + fault);
    return {};
  }
  return std::string(view(text));
}

std::string In::text(capnp::Text::Reader text, const char* what) {
  if (!is_utf8(view(text))) {
    fail(std::string(what) + " is not UTF-8");
    return {};
  }
  return take(text.size(), 1) ? std::string(view(text)) : std::string();
}

std::string In::sentence(capnp::Text::Reader text) {
  require(text.size() <= wire::SENTENCE_BYTES_MAX, "an explanation is too long");
  return ok() ? this->text(text, "an explanation") : std::string();
}

std::vector<std::int32_t> In::ints(capnp::List<std::int32_t>::Reader wire, std::int32_t low,
                                   std::int32_t high, const char* what) {
  return list<std::int32_t>(wire, [&](std::int32_t v) { return in_range(v, low, high, what); });
}

void put_words(capnp::List<std::uint64_t>::Builder wire, const std::vector<std::uint64_t>& values) {
  for (unsigned i = 0; i < values.size(); ++i) wire.set(i, values[i]);
}

std::vector<std::uint64_t> get_words(In& in, capnp::List<std::uint64_t>::Reader wire) {
  return in.list<std::uint64_t>(wire, [](std::uint64_t value) { return value; });
}

void put_floats(capnp::List<float>::Builder wire, const std::vector<float>& values) {
  for (unsigned i = 0; i < values.size(); ++i) wire.set(i, values[i]);
}

std::vector<float> get_floats(In& in, capnp::List<float>::Reader wire) {
  return in.list<float>(wire, [&](float value) {
    in.require(std::isfinite(value), "a hidden state is no number");
    return value;
  });
}

Pooling get_pooling(In& in, wire::Pooling wire) {
  return in.enumeration(wire, Pooling::kAll, "pooling");
}

std::uint32_t get_hidden_width(In& in, std::uint32_t width, Pooling pooling) {
  return in.in_range(width, pooling == Pooling::kNone ? 0 : 1,
                     limits::kStepHiddenBytesMax / sizeof(float), "a hidden state's width");
}

capnp::Data::Reader data_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const kj::byte*>(bytes.data()), bytes.size()};
}

CommunicatorId get_communicator_id(In& in, capnp::Data::Reader wire) {
  CommunicatorId id{};
  in.require(wire.size() == id.size(), "a communicator's id has a wrong length");
  if (in.ok()) std::ranges::copy(std::as_bytes(std::span(wire.begin(), wire.size())), id.begin());
  return id;
}

std::string describe(const kj::Exception& exception) {
  const std::string text = exception.getDescription().cStr();
  return text.substr(0, text.find_first_of(";\n"));
}

Result<std::vector<std::byte>> serialize(capnp::MessageBuilder& builder, std::size_t bytes_max,
                                         const char* what, const char* done) {
  const std::size_t size = capnp::computeSerializedSizeInWords(builder) * sizeof(capnp::word);
  if (size > bytes_max)
    return resource_exhausted(std::string(what) + " of " + std::to_string(size) +
                              " bytes is longer than " + std::to_string(bytes_max) +
                              " bytes and cannot be " + done + ".");
  std::vector<std::byte> bytes(size);
  kj::ArrayOutputStream stream({reinterpret_cast<kj::byte*>(bytes.data()), bytes.size()});
  capnp::writeMessage(stream, builder);
  return bytes;
}

void put_ints(capnp::List<std::int32_t>::Builder wire, const std::vector<std::int32_t>& values) {
  for (std::size_t i = 0; i < values.size(); ++i) wire.set(static_cast<unsigned>(i), values[i]);
}

void put_texts(Out& out, capnp::List<capnp::Text>::Builder wire,
               const std::vector<std::string>& texts) {
  for (unsigned i = 0; i < texts.size(); ++i) wire.set(i, out.text(texts[i], "a text"));
}

std::vector<std::string> get_texts(In& in, capnp::List<capnp::Text>::Reader wire) {
  return in.list<std::string>(wire,
                              [&](capnp::Text::Reader text) { return in.text(text, "a text"); });
}

void put(Out&, wire::Address::Builder wire, const Address& address) {
  wire.setNode(address.node.value);
  wire.setIncarnation(address.incarnation.value);
  wire.setActor(static_cast<wire::ActorKind>(address.actor.kind));
  wire.setIndex(address.actor.index);
}

Address get(In& in, wire::Address::Reader wire) {
  return {
      NodeId{wire.getNode()},
      Incarnation{wire.getIncarnation()},
      {in.enumeration(wire.getActor(), ActorKind::kStandby, "an actor's kind"), wire.getIndex()}};
}

void put(Out&, wire::DeviceRef::Builder wire, const DeviceRef& device) {
  wire.setNode(device.node.value);
  wire.setIndex(device.index);
}

DeviceRef get(In& in, wire::DeviceRef::Reader wire) {
  return {NodeId{wire.getNode()},
          in.in_range(wire.getIndex(), 0, limits::kDevicesPerNodeMax - 1, "a device's index")};
}

Numerics get_numerics(In& in, wire::Numerics wire) {
  const auto value = static_cast<std::uint16_t>(wire);
  in.require(value <= 255 && is_numerics(static_cast<std::uint8_t>(value)),
             "the numerics are unknown");
  return static_cast<Numerics>(value);
}

void put(Out& out, wire::Error::Builder wire, const Error& error) {
  wire.setCode(static_cast<wire::ErrorCode>(error.code));
  wire.setMessage(out.sentence(error.message));
}

Error get(In& in, wire::Error::Reader wire) {
  return {in.enumeration(wire.getCode(), ErrorCode::kInternal, "an error's code"),
          in.sentence(wire.getMessage())};
}

namespace {

void put_rules(Out& out, wire::TokenRules::Builder wire, const TokenRules& rules) {
  wire.setGrammar(out.text(rules.grammar, "a grammar"));
  put_texts(out, wire.initGrammarAfter(rules.grammar_after.size()), rules.grammar_after);
  wire.setThoughtToken(rules.thought_token);
  wire.setGrammarToken(rules.grammar_token);
  put_ints(wire.initEndTokens(rules.end_tokens.size()), rules.end_tokens);
  wire.setMinTokens(rules.min_tokens);
  put_ints(wire.initAllowed(rules.allowed.size()), rules.allowed);
  auto banned = wire.initBanned(rules.banned.size());
  for (unsigned i = 0; i < rules.banned.size(); ++i)
    put_ints(banned.init(i, rules.banned[i].size()), rules.banned[i]);
  put_list(rules.bias, wire.initBias(rules.bias.size()), [](auto w, const TokenBias& of) {
    w.setToken(of.token);
    w.setBias(of.bias);
  });
}

std::shared_ptr<const TokenRules> get_rules(In& in, wire::TokenRules::Reader wire) {
  const auto tokens = [&in](auto list) { return in.ints(list, 0, kTokenMax, "a token of a rule"); };
  auto rules = std::make_shared<TokenRules>();
  rules->grammar = in.text(wire.getGrammar(), "a grammar");
  rules->grammar_after = get_texts(in, wire.getGrammarAfter());
  for (const std::string& text : rules->grammar_after)
    in.require(!text.empty(), "a text before a grammar is empty");
  rules->thought_token = in.in_range(wire.getThoughtToken(), -1, kTokenMax, "a token of a rule");
  rules->grammar_token = in.in_range(wire.getGrammarToken(), -1, kTokenMax, "a token of a rule");
  rules->end_tokens = tokens(wire.getEndTokens());
  rules->min_tokens = wire.getMinTokens();
  rules->allowed = tokens(wire.getAllowed());
  rules->banned = in.list<std::vector<TokenId>>(wire.getBanned(), tokens);
  for (const auto& word : rules->banned) in.require(!word.empty(), "a banned word is empty");
  rules->bias = in.list<TokenBias>(wire.getBias(), [&in](wire::TokenBias::Reader of) {
    return TokenBias{in.in_range(of.getToken(), 0, kTokenMax, "a token with a bias"),
                     finite(in, of.getBias(), -limits::kBiasMax, limits::kBiasMax, "a bias")};
  });
  in.require(std::ranges::is_sorted(rules->allowed), "the tokens of a rule do not rise");
  const auto not_above = [](const TokenBias& a, const TokenBias& b) { return a.token >= b.token; };
  in.require(std::ranges::adjacent_find(rules->bias, not_above) == rules->bias.end(),
             "tokens with a bias do not rise");
  in.require(rules->bytes() <= limits::kTokenRulesBytesMax, "a request has too many rules");
  return rules;
}

}  // namespace

void put(Out& out, wire::SamplingParams::Builder wire, const SamplingParams& sampling) {
  wire.setTemperature(sampling.temperature);
  wire.setTopP(sampling.top_p);
  wire.setTopK(sampling.top_k);
  wire.setMinP(sampling.min_p);
  wire.setRepetitionPenalty(sampling.repetition_penalty);
  wire.setPresencePenalty(sampling.presence_penalty);
  wire.setFrequencyPenalty(sampling.frequency_penalty);
  wire.setSeed(sampling.seed);
  wire.setChoice(sampling.choice);
  wire.setTopLogprobs(sampling.top_logprobs);
  if (sampling.rules) put_rules(out, wire.initRules(), *sampling.rules);
}

SamplingParams get(In& in, wire::SamplingParams::Reader wire) {
  constexpr float kMax = std::numeric_limits<float>::max();
  SamplingParams s;
  s.temperature = finite(in, wire.getTemperature(), 0, kMax, "temperature");
  s.top_p = positive(in, wire.getTopP(), 1, "top_p");
  s.top_k = in.in_range(wire.getTopK(), 0, kInt32Max, "top_k");
  s.min_p = finite(in, wire.getMinP(), 0, 1, "min_p");
  s.repetition_penalty = positive(in, wire.getRepetitionPenalty(), kMax, "repetition_penalty");
  s.presence_penalty = finite(in, wire.getPresencePenalty(), -2, 2, "presence_penalty");
  s.frequency_penalty = finite(in, wire.getFrequencyPenalty(), -2, 2, "frequency_penalty");
  s.seed = wire.getSeed();
  s.choice = in.in_range(wire.getChoice(), 0, limits::kChoicesMax - 1, "choice");
  s.top_logprobs = in.in_range(wire.getTopLogprobs(), -1, kTopLogprobsMax, "top_logprobs");
  if (wire.hasRules()) s.rules = get_rules(in, wire.getRules());
  return s;
}

void put(Out&, wire::TokenOutput::Builder wire, const TokenOutput& token) {
  wire.setToken(token.token);
  wire.setLogprob(token.logprob);
  if (token.top.empty()) return;
  put_list(token.top, wire.initTop(token.top.size()), [](auto w, const TokenLogprob& top) {
    w.setToken(top.token);
    w.setLogprob(top.logprob);
  });
}

TokenOutput get(In& in, wire::TokenOutput::Reader wire) {
  TokenOutput output;
  output.token = in.in_range(wire.getToken(), 0, kTokenMax, "a token");
  output.logprob = logprob(in, wire.getLogprob());
  const auto top = wire.getTop();
  in.require(top.size() <= limits::kTopLogprobsMax, "a token has too many alternatives");
  output.top = in.list<TokenLogprob>(top, [&](auto w) {
    return TokenLogprob{in.in_range(w.getToken(), 0, kTokenMax, "a token"),
                        logprob(in, w.getLogprob())};
  });
  return output;
}

void put_tokens(Out& out, capnp::List<wire::TokenOutput>::Builder wire,
                const std::vector<TokenOutput>& tokens) {
  put_list(tokens, wire, [&](auto w, const TokenOutput& token) { put(out, w, token); });
}

std::vector<TokenOutput> get_tokens(In& in, capnp::List<wire::TokenOutput>::Reader wire) {
  return in.list<TokenOutput>(wire, [&](auto w) { return get(in, w); });
}

void put(Out&, wire::ProtocolRange::Builder wire, const ProtocolRange& range) {
  wire.setOldest(range.oldest);
  wire.setNewest(range.newest);
}

ProtocolRange get(In& in, wire::ProtocolRange::Reader wire) {
  const ProtocolRange range{wire.getOldest(), wire.getNewest()};
  in.require(range.oldest >= 1 && range.oldest <= range.newest, "a protocol range is empty");
  return range;
}

}  // namespace troupe::transport
