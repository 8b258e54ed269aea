# A step on its way through the shards.
@0x955d250570cb58f9;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("troupe::wire");

using import "error.capnp".Error;
using import "sampling.capnp".SamplingParams;
using import "sampling.capnp".TokenOutput;

struct StepSequence {
  id @0 :UInt64;
  blockTable @1 :List(Int32);
  firstPosition @2 :Int32;
  tokens @3 :List(Int32);
  promptLength @4 :Int32;
  sampling @5 :SamplingParams;
  sample @6 :Bool;
  promptLogprobs @7 :Bool;
  targets @8 :List(Int32);
  canary @9 :Bool;
  tableSlot @10 :Int32;
  tableBase @11 :Int32;
  hiddenRows @12 :Int32;
}

struct StepPlan {
  replica @0 :UInt32;
  version @1 :UInt64;
  step @2 :UInt64;
  sequences @3 :List(StepSequence);
  express @4 :Bool;
}

# The tensor goes beside the header: float32 [rows, hidden].
struct Hidden {
  replica @0 :UInt32;
  step @1 :UInt64;
  rows @2 :UInt32;
  digests @3 :List(UInt64);
}

# The numbers go beside the header: float32, as the step's cut says.
struct RankPart {
  replica @0 :UInt32;
  step @1 :UInt64;
  exchange @2 :UInt32;
}

struct RankReady {
  replica @0 :UInt32;
  step @1 :UInt64;
  exchange @2 :UInt32;
  to @3 :List(UInt64);
  from @4 :List(UInt64);
}

struct RankGo {
  replica @0 :UInt32;
  group @1 :UInt32;
  order @2 :UInt64;
  step @3 :UInt64;
  exchange @4 :UInt32;
  fits @5 :Bool;
  from @6 :List(UInt64);
  givenUp @7 :Bool;
}

struct RankGroup {
  replica @0 :UInt32;
  group @1 :UInt32;
  state @2 :State;
  id @3 :Data;
  reason @4 :Text;

  enum State {
    form @0;
    formed @1;
    broken @2;
  }
}

struct MaybeToken {
  union {
    none @0 :Void;
    token @1 :TokenOutput;
  }
}

struct SequenceResult {
  id @0 :UInt64;
  sampled @1 :MaybeToken;
  prompt @2 :List(MaybeToken);
  trouble @3 :Text;
  waits @4 :Bool;
  hidden @5 :List(Float32);
  unanswerable @6 :Bool;
}

struct StepResult {
  replica @0 :UInt32;
  step @1 :UInt64;
  sequences @2 :List(SequenceResult);
  digests @3 :List(UInt64);
}

struct StepFailed {
  replica @0 :UInt32;
  step @1 :UInt64;
  error @2 :Error;
}

struct StepAbort {
  replica @0 :UInt32;
  step @1 :UInt64;
}

struct StepProgress {
  replica @0 :UInt32;
  step @1 :UInt64;
}
