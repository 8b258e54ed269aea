# What a head writes down of the requests that it accepted.
@0xb1f3a0c6d7e84a25;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("troupe::wire");

using import "error.capnp".Error;
using import "sampling.capnp".FinishReason;
using import "sampling.capnp".Pooling;
using import "sampling.capnp".SamplingParams;
using import "sampling.capnp".TokenOutput;

struct RequestName {
  id @0 :Text;
  index @1 :UInt32;
  count @2 :UInt32;
  owner @3 :UInt64;
  key @4 :Text;
  bodyLow @5 :UInt64;
  bodyHigh @6 :UInt64;
  form @7 :Text;
}

struct PreparedRequest {
  prompt @0 :List(Int32);
  sampling @1 :SamplingParams;
  maxTokens @2 :UInt32;
  n @3 :UInt32;
  stop @4 :List(Text);
  stopTokens @5 :List(Int32);
  keepSpecial @6 :List(Int32);
  promptLogprobs @7 :Int32;
  timeoutMs @8 :UInt64;
  streams @9 :Bool;
  name :union {
    none @10 :Void;
    value @11 :RequestName;
  }
  includeStopStrInOutput @12 :Bool;
  skipSpecialTokens @13 :Bool = true;
  priority @14 :Int32;
  pooling @15 :Pooling;
  hiddenWidth @16 :UInt32;
}

struct JournalAccepted {
  request @0 :UInt64;
  firstSequence @1 :UInt64;
  acceptedUnixMs @2 :Int64;
  prepared @3 :PreparedRequest;
}

struct JournalSubmitted {
  sequence @0 :UInt64;
  attempt @1 :UInt32;
}

struct JournalPrompt {
  request @0 :UInt64;
  index @1 :UInt32;
  logprobs @2 :List(TokenOutput);
}

struct JournalHidden {
  request @0 :UInt64;
  index @1 :UInt32;
  values @2 :List(Float32);
}

struct JournalTokens {
  sequence @0 :UInt64;
  index @1 :UInt32;
  tokens @2 :List(TokenOutput);
}

struct JournalFinished {
  sequence @0 :UInt64;
  reason @1 :FinishReason;
  tokens @2 :UInt32;
}

struct JournalEnded {
  request @0 :UInt64;
  endedUnixMs @1 :Int64;
  error :union {
    none @2 :Void;
    value @3 :Error;
  }
}

struct JournalForgotten {
  request @0 :UInt64;
}

struct JournalCrashes {
  request @0 :UInt64;
  crashes @1 :UInt32;
  term @2 :UInt64;
}

struct JournalRecord {
  union {
    none @0 :Void;
    accepted @1 :JournalAccepted;
    submitted @2 :JournalSubmitted;
    prompt @3 :JournalPrompt;
    tokens @4 :JournalTokens;
    finished @5 :JournalFinished;
    ended @6 :JournalEnded;
    forgotten @7 :JournalForgotten;
    hidden @8 :JournalHidden;
    crashes @9 :JournalCrashes;
  }
}
