# What a client asks for and what it hears.
@0x8c0229a2877401cd;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("troupe::wire");

using import "error.capnp".Error;
using import "sampling.capnp".FinishReason;
using import "sampling.capnp".Pooling;
using import "sampling.capnp".TokenBias;
using import "sampling.capnp".TokenOutput;

struct ToolCall {
  id @0 :Text;
  name @1 :Text;
  arguments @2 :Text;
}

struct ChatMessage {
  role @0 :Text;
  content @1 :Text;
  toolCalls @2 :List(ToolCall);
  toolCallId @3 :Text;
  name @4 :Text;
  reasoningContent @5 :Text;
  parts @6 :List(Text);
  more @7 :Text;
}

struct OptionalFloat32 {
  union {
    none @0 :Void;
    value @1 :Float32;
  }
}

struct GenerationRequest {
  prompt :union {
    none @0 :Void;
    text @1 :Text;
    tokens @2 :List(Int32);
    chat @3 :List(ChatMessage);
  }
  maxTokens :union {
    none @4 :Void;
    value @5 :UInt32;
  }
  temperature @6 :OptionalFloat32;
  topP @7 :OptionalFloat32;
  minP @8 :OptionalFloat32;
  repetitionPenalty @9 :OptionalFloat32;
  presencePenalty @10 :OptionalFloat32;
  frequencyPenalty @11 :OptionalFloat32;
  topK :union {
    none @12 :Void;
    value @13 :Int32;
  }
  seed :union {
    none @14 :Void;
    value @15 :UInt64;
  }
  n @16 :UInt32;
  stop @17 :List(Text);
  ignoreEos @18 :Bool;
  logprobs @19 :Int32;
  promptLogprobs @20 :Int32;
  timeoutMs :union {
    none @21 :Void;
    value @22 :UInt32;
  }
  chatTemplateKwargs @23 :Text;
  addSpecialTokens @24 :Bool = true;
  grammar @25 :Text;
  minTokens @26 :UInt32;
  stopTokenIds @27 :List(Int32);
  allowedTokenIds @28 :List(Int32);
  badWords @29 :List(Text);
  logitBias @30 :List(TokenBias);
  tools @31 :Text;
  grammarOfCalls @32 :Bool;
  addGenerationPrompt @33 :Bool = true;
  continueFinalMessage @34 :Bool;
  truncatePromptTokens @35 :Int64;
  includeStopStrInOutput @36 :Bool;
  skipSpecialTokens @37 :Bool = true;
  priority @38 :Int32;
  pooling @39 :Pooling;
  grammarInThought @40 :Bool;
}

struct GenerationTiming {
  queuedMs @0 :Float64;
  firstTokenMs @1 :Float64;
  totalMs @2 :Float64;
}

struct GenerationEvent {
  choice @0 :UInt32;
  text @1 :Text;
  tokens @2 :List(TokenOutput);
  finish @3 :FinishReason;
  requestDone @4 :Bool;
  promptTokens @5 :List(Int32);
  promptLogprobs @6 :List(TokenOutput);
  timing @7 :GenerationTiming;
  error :union {
    none @8 :Void;
    value @9 :Error;
  }
  cachedTokens @10 :UInt32;
  hidden @11 :List(Float32);
}

struct ClusterEvent {
  timeUnixMs @0 :Int64;
  kind @1 :Text;
  text @2 :Text;
}
