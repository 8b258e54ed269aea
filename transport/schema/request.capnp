# Sequences between the Router and the Replicas.
@0xd9c5759fc0f7f095;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("troupe::wire");

using import "error.capnp".Error;
using import "sampling.capnp".FinishReason;
using import "sampling.capnp".Pooling;
using import "sampling.capnp".SamplingParams;
using import "sampling.capnp".TokenOutput;

struct Submit {
  sequence @0 :UInt64;
  attempt @1 :UInt32;
  prompt @2 :List(Int32);
  output @3 :List(Int32);
  sampling @4 :SamplingParams;
  maxTokens @5 :UInt32;
  stopTokens @6 :List(Int32);
  promptLogprobs @7 :Int32;
  owner @8 :UInt64;
  weight @9 :Float32 = 1;
  priority @10 :Int32;
  pooling @11 :Pooling;
  hiddenWidth @12 :UInt32;
}

struct Cancel {
  sequence @0 :UInt64;
  attempt @1 :UInt32;
}

struct SequenceEvent {
  sequence @0 :UInt64;
  attempt @1 :UInt32;
  started @2 :Bool;
  index @3 :UInt32;
  tokens @4 :List(TokenOutput);
  finish @5 :FinishReason;
  promptIndex @6 :UInt32;
  promptLogprobs @7 :List(TokenOutput);
  error :union {
    none @8 :Void;
    value @9 :Error;
  }
  cachedTokens @10 :Int32 = -1;
  hiddenIndex @11 :UInt32;
  hidden @12 :List(Float32);
}

struct SequenceEvents {
  replica @0 :UInt32;
  events @1 :List(SequenceEvent);
}
