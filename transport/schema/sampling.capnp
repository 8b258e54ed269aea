# How a token is chosen, and which one it was.
@0xbe28923144656aa4;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("troupe::wire");

struct SamplingParams {
  temperature @0 :Float32;
  topP @1 :Float32;
  topK @2 :Int32;
  minP @3 :Float32;
  repetitionPenalty @4 :Float32;
  presencePenalty @5 :Float32;
  frequencyPenalty @6 :Float32;
  seed @7 :UInt64;
  choice @8 :UInt32;
  topLogprobs @9 :Int32;
  rules @10 :TokenRules;
}

struct TokenRules {
  grammar @0 :Text;
  grammarAfter @1 :List(Text);
  endTokens @2 :List(Int32);
  minTokens @3 :UInt32;
  allowed @4 :List(Int32);
  banned @5 :List(List(Int32));
  bias @6 :List(TokenBias);
  thoughtToken @7 :Int32 = -1;
  grammarToken @8 :Int32 = -1;
}

struct TokenBias {
  token @0 :Int32;
  bias @1 :Float32;
}

struct TokenLogprob {
  token @0 :Int32;
  logprob @1 :Float32;
}

struct TokenOutput {
  token @0 :Int32;
  logprob @1 :Float32;
  top @2 :List(TokenLogprob);
}

enum Pooling {
  none @0;
  last @1;
  all @2;
}

enum FinishReason {
  none @0;
  stop @1;
  length @2;
}
