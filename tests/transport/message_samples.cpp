#include "tests/transport/message_samples.h"

#include <cmath>
#include <string>

namespace troupe {
namespace {

const std::string kText = "Gr\xC3\xBC\xC3\x9F Gott, \xE6\xBC\xA2\xE5\xAD\x97 \xF0\x9F\x8E\xAD";
const Address kFrom{NodeId{3}, Incarnation{1ull << 40}, {ActorKind::kReplica, 9}};
const Address kTo{NodeId{4}, Incarnation{77}, {ActorKind::kClient, 0xFFFFFFFF}};
const Error kError{ErrorCode::kUnavailable, "node-4 is gone; " + kText};
const PlacementVersion kVersion{12};

Payload payload(std::size_t bytes) {
  auto buffer = std::make_shared<Buffer>(bytes);
  for (std::size_t i = 0; i < bytes; ++i) buffer->data()[i] = static_cast<std::byte>(i * 7 + 1);
  return Payload::of(std::move(buffer));
}

SamplingParams sampling() { return {0.7f, 0.9f, 40, 0.05f, 1.1f, -1.5f, 1.5f, ~0ull, 5, 20, {}}; }

SamplingParams ruled() {
  TokenRules rules;
  rules.grammar = "root ::= \"" + kText + "\"\n";
  rules.grammar_after = {"</think>", kText};
  rules.thought_token = 7;
  rules.grammar_token = 8;
  rules.end_tokens = {1, 2};
  rules.min_tokens = 3;
  rules.allowed = {4, 5, 5};
  rules.banned = {{6}, {7, 8}};
  rules.bias = {{9, -100}, {10, 0.5f}};
  SamplingParams params = sampling();
  params.rules = std::make_shared<const TokenRules>(rules);
  return params;
}

TokenOutput token(TokenId id) { return {id, -0.25f, {{id, -0.25f}, {id + 1, -INFINITY}}}; }

EngineOptions engine() {
  EngineOptions e;
  e.model = "/models/" + kText;
  e.served_model_name = "deepseek";
  e.max_model_len = 163840;
  e.max_num_seqs = 17;
  e.max_num_batched_tokens = 4096;
  e.block_size = 32;
  e.kv_cache_memory = 1ull << 35;
  e.seed = 42;
  e.request_timeout_s = 30;
  e.tensor_parallel_size = 2;
  e.pipeline_parallel_size = 3;
  e.data_parallel_size = 4;
  e.redundant_experts = 8;
  e.min_devices = 5;
  e.prefix_caching = false;
  e.numerics = Numerics::kBf16;
  return e;
}

Placement placement() {
  const DeviceRef device{NodeId{2}, 3}, other{NodeId{5}, 1};
  return {kVersion,
          Numerics::kBf16,
          {{0, NodeId{2}, 1000}, {1, NodeId{5}, 2000}},
          {{0, 0, 0, 0, 30, device},
           {0, 0, 1, 0, 30, other},
           {0, 1, 0, 31, 60, other},
           {0, 1, 1, 31, 60, device},
           {1, 0, 0, 0, 60, other},
           {1, 0, 1, 0, 60, other}},
          {{3, {{0, device}, {255, other}}}, {4, {{7, other}}}},
          {{3, {{0, other}}}}};
}

Load load() {
  FabricToken secret;
  for (std::size_t i = 0; i < secret.size(); ++i) secret[i] = static_cast<std::byte>(200 + i);
  return {placement(), engine(), {{NodeId{5}, Incarnation{8}, "net://10.0.0.1:7", secret, 22809}}};
}

StepPlan plan() {
  const StepSequence prompt{SequenceId{1}, {4, 5, 6}, 16,   {10, 11, 12}, 99,
                            ruled(),       true,      true, {11, -1, 13}, true, 0, 0, 2};
  const StepSequence decode{SequenceId{2}, {}, 7, {5}, 6, sampling(), true, false, {}, false, 3, 1};
  return {3, kVersion, {StepId{1000}, {prompt, decode}, true}};
}

ChatMessage whole_message() {
  ChatMessage message{"assistant", "", {{"c1", "f", "{}"}, {"c2", "g", kText}}};
  message.reasoning_content = kText;
  message.parts = {"", kText};
  message.more = R"({"plan": [1]})";
  return message;
}

GenerationRequest request(Prompt prompt) {
  GenerationRequest r;
  r.prompt = std::move(prompt);
  r.add_special_tokens = false;
  r.add_generation_prompt = false;
  r.continue_final_message = true;
  r.truncate_prompt_tokens = -1;
  r.include_stop_str_in_output = true;
  r.skip_special_tokens = false;
  r.chat_template_kwargs = R"({"thinking":true})";
  r.tools = R"([{"type":"function"}])";
  r.max_tokens = 100;
  r.temperature = 0.5f;
  r.top_p = 0.6f;
  r.min_p = 0.1f;
  r.repetition_penalty = 1.2f;
  r.presence_penalty = 0.3f;
  r.frequency_penalty = -0.3f;
  r.top_k = 12;
  r.seed = 1ull << 63;
  r.n = 4;
  r.stop = {"\n\n", kText};
  r.grammar = "root ::= [a-z]+";
  r.grammar_of_calls = true;
  r.grammar_in_thought = true;
  r.priority = -3;
  r.min_tokens = 2;
  r.stop_token_ids = {3, 4};
  r.allowed_token_ids = {5, 6};
  r.bad_words = {"bad", kText};
  r.logit_bias = {{7, -1.5f}, {8, 100}};
  r.ignore_eos = true;
  r.logprobs = 5;
  r.prompt_logprobs = 7;
  r.pooling = Pooling::kLast;
  r.timeout_ms = 1500;
  return r;
}

GenerationEvent generation_event() {
  return {2,      kText,     {token(5), token(6)}, FinishReason::kLength,
          true,   {1, 2, 3}, {token(9)},           {0.5, 1.5, -1},
          kError, 2,         {3.5f}};
}

std::vector<Message> membership_samples() {
  const ReplicaReport replica{1, 2, 3, 40, 4, 5, 6};
  return {
      Greeting{
          {1, 3}, "cluster", "0.1.0", "/models/v3", "abcdef", Numerics::kBf16KvFp8, 1ull << 63},
      Join{{1, 2},
           "0.1.0",
           "host",
           4711,
           "worker-x",
           {Numerics::kReference, Numerics::kBf16},
           "abcdef",
           {{"cuda", 80ull << 30, 16, "NVIDIA H100", "sm_90"}, {"cpu", 1, 2}},
           NodeId{7},
           "cluster",
           1ull << 39,
           {{0, 30, {1, 2}}, {31, 60}},
           {{3, {0, 1, 255}}, {4, {7}}},
           1ull << 37,
           "net://10.0.0.2:1",
           "net (auto: no verbs)",
           22809,
           HeldRole{Incarnation{5}, load().placement, load().engine, {NodeId{2}, NodeId{9}}}},
      Refused{ErrorCode::kCorrupt, kText},
      Welcome{NodeId{8}, Incarnation{9}, 1200, 17},
      Renew{5,
            {{1ull << 36, 0.75f, 250, "", 1ull << 40, {0.5f, 64u, 2u, kText}},
             {1, 1.0f, 0, kText, 3, {{}, 0u, {}, ""}}},
            {replica},
            {9, 8, 7, 6},
            4},
      Renewed{6},
      Leave{kText},
      load(),
      LoadProgress{kVersion, 5, 1ull << 40},
      Loaded{kVersion},
      LoadFailed{kVersion, kError},
      Activate{kVersion},
      Activated{kVersion},
      Retire{kVersion},
      MemberLost{NodeId{6}, Incarnation{2}, kText},
      Connect{{NodeId{3}, Incarnation{4}, "net:head:4711", {}, 0, true}},
      ExpertCounts{{{3, {0, 5, 1u << 31}}, {4, {}}}},
      Avoid{{{NodeId{2}, 3}, {NodeId{5}, 1}}},
      Stop{kText},
      PeerUnreachable{NodeId{6}, Incarnation{2}, kText, LinkFault::kOwnEnd},
  };
}

std::vector<Message> proof_samples() {
  const TensorProof whole{"model.norm.weight", "model.safetensors", {{1, 2}}, Digest{~0ull, 4}};
  const TensorProof bare{"lm_head.weight", "b.safetensors", {{5, 6}, {7, 8}}, std::nullopt};
  return {
      TensorProofs{false, {whole, bare}},
      TensorProofs{true, {}, kError, {"model.norm.weight"}},
      TensorProofs{true, {bare}, {}, {}, true},
      TensorProofs{false, {}, {}, {}, false, kText},
      Prove{{"model.norm.weight", "lm_head.weight"}},
      Discard{{"model.norm.weight"}},
      ProofFailed{"lm_head.weight", kText, 12},
      RunCanary{1, 5, {3, 1, 4}, 8},
      CanaryResult{1, 5, {9, 2}, {1ull << 63, 7}},
      CanaryResult{1, 6, {}, {}, kError},
      CanaryResult{1, 7, {}, {}, kError, true},
      ForgetPrefixes{7},
  };
}

std::vector<Message> work_samples() {
  const SequenceEvent event{
      SequenceId{5},        2,      true, 7, {token(1)}, FinishReason::kStop, 3,
      {token(2), token(3)}, kError, 96,   5, {0.5f, -2.25f}};
  return {
      Submit{SequenceId{1}, 2, {1, 2, 3}, {4, 5}, ruled(), 100, {0, 1}, 3, ~0ull, 2.5f,
             -7, Pooling::kAll, 7168},
      Cancel{SequenceId{1}, 2},
      SequenceEvents{4, {event, SequenceEvent{}}},
      plan(),
      Hidden{1, StepId{2}, 3, payload(3 * 16 * sizeof(float)), {1, ~0ull}},
      RankPart{1, StepId{2}, 3, payload(64)},
      RankReady{1, StepId{2}, 3, {0, 64}, {0, RankReady::kAny}},
      RankGo{1, 2, 3, StepId{4}, 5, true, {64, 0}},
      RankGo{1, 0, 0, StepId{4}, 5, true, {}, true},
      RankGroup{1, 2, RankGroup::State::kForm, {std::byte{7}, std::byte{8}}},
      RankGroup{1, 2, RankGroup::State::kBroken, {}, kText},
      Parcel{1, 2, 64, {std::byte{3}, std::byte{4}}},
      ParcelGroup{1, ParcelGroup::State::kForm, 0, {std::byte{7}, std::byte{8}}},
      ParcelGroup{2, ParcelGroup::State::kBroken, 9, {}, kText},
      StepResult{1,
                 StepId{2},
                 {{SequenceId{3}, token(1), {std::nullopt, token(2)}},
                  {SequenceId{4}, std::nullopt, {}, kText},
                  {SequenceId{5}, std::nullopt, {}, {}, true, {1.5f, -0.0f}},
                  {SequenceId{6}, std::nullopt, {}, kText, false, {}, true}},
                 {3, 4}},
      StepFailed{1, StepId{2}, kError},
      StepAbort{1, StepId{2}},
      StepProgress{1, StepId{2}},
      ExpertProgress{9},
      Dispatch{9, kVersion, 5, 2, {{0, 3}, {1, 255}, {1, 4}}, payload(2 * 16 * 2), true},
      ExpertOutput{9, 3, payload(3 * 16 * 2)},
      NotHere{9, {3, 255}, kText},
  };
}

std::vector<Message> client_samples() {
  return {
      ClientHello{{1, 4}, "troupe status"},
      ClientWelcome{3},
      StatusQuery{1},
      StatusReply{1, "{\"state\": \"ready\"}"},
      StopQuery{2},
      StopReply{2, {10, 11}},
      ClientGenerate{3, request(kText)},
      ClientGenerate{4, request(std::vector<TokenId>{1, 2, 3})},
      ClientGenerate{
          5,
          request(std::vector<ChatMessage>{
              {"system", "a"}, {"user", kText}, whole_message(), {"tool", kText, {}, "c1", "f"}})},
      ClientCancel{3},
      ClientGeneration{3, generation_event()},
      Subscribe{},
      ClusterNews{{1700000000000, "node_joined", kText}},
      DrainQuery{6, NodeId{3}},
      RebalanceQuery{7},
      CrashReport{8, NodeId{3}, Incarnation{4}, 11, kText},
      OperationProgress{6, 3, 9, kText, true, kError},
      OperationProgress{6, 3, 9, kText, false, std::nullopt},
      Undeliverable{kTo, 17, 5, kError},
  };
}

std::vector<Message> standby_samples() {
  const JournalTokens tokens{SequenceId{5}, 2, {token(7), token(8)}};
  return {
      Follow{{4, 5}, "1.2", "abcd", engine(), "10.0.0.2:6379", 77, 76},
      Succession{3, "c0ffee", 9, true, {{NodeId{1}, Incarnation{5}}, {NodeId{4}, Incarnation{6}}}},
      KnownLines{true, "numerics bf16\n"},
      JournalCopy{
          2, 11, true, false, false, {tokens, JournalForgotten{3}, JournalCrashes{3, 2, 9}}},
      JournalCopy{2, 12, false, true, true, {}},
      Followed{8, 3, 11},
      Successor{4, 77, "10.0.0.2:6379"},
      Successor{5, 0, ""},
      SuccessorKnown{4},
      Standing{"c0ffee", 77, Incarnation{1ull << 50}, kText},
      Pledge{Incarnation{1ull << 50}, {NodeId{4}, Incarnation{6}}, 77},
      HeadReturns{"c0ffee"},
  };
}

std::vector<Message> link_samples() {
  const FabricAdapter adapter{"mlx5_0",     "0000:17:00.0", "0x15b3", "0x1021",        "mlx5_core",
                              "28.39.1002", "InfiniBand",   "up",     400'000'000'000, 9000};
  const FabricPort port{"net", kText,   {"net", "tcp"}, "eth0", kText, {"eth0", "eth1"},
                        1,     100'000, adapter};
  const LinkFigures figures{500, 9.5f, 31, {{65536, 5.5e9, 5.25e9}, {1u << 20, 0, 7e9}}};
  return {
      NetworkQuery{9, NodeId{3}, 12, {1, kProbeBytesMax}, true, true},
      NetworkPlan{9, {{NodeId{1}, "a", "10.0.0.1:99", port}, {NodeId{2}, "b", "", {}}}, 1, 2, 1},
      PairReport{9, NodeId{1}, NodeId{2}, figures, 3, std::nullopt},
      PairReport{9, NodeId{1}, NodeId{2}, {}, 0, kError},
      MeasureLink{7, NodeId{2}, Incarnation{6}, {65536}},
      EndMeasure{7},
      LinkMeasured{7, figures, std::nullopt},
      LinkMeasured{7, {}, kError},
      LinkProbe{7, 8, 0, payload(48)},
      LinkProbe{7, 9, kProbeBytesMax, {}},
      LinkEcho{7, 8, {}},
      LinkEcho{7, 9, payload(16)},
  };
}

}  // namespace

std::vector<Envelope> message_samples() {
  std::vector<Envelope> samples;
  for (auto group : {membership_samples(), work_samples(), client_samples(), proof_samples(),
                     standby_samples(), link_samples()})
    for (auto& message : group) samples.push_back({kFrom, kTo, message_of(std::move(message))});
  return samples;
}

}  // namespace troupe
