# How copies prove that they are what the cluster serves: bytes, memory, and the canary.
@0xc3f1a5d20b7e4916;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("troupe::wire");

using import "error.capnp".Error;

# Digests are XXH3-128: low and high 64 bits, one after the other.
struct TensorProof {
  tensor @0 :Text;
  file @1 :Text;
  stored @2 :List(UInt64);
  packed @3 :List(UInt64);
}

struct TensorProofs {
  fresh @0 :Bool;
  tensors @1 :List(TensorProof);
  error :union {
    none @2 :Void;
    value @3 :Error;
  }
  unread @4 :List(Text);
  changed @5 :Text;
  reopened @6 :Bool;
}

struct Prove {
  tensors @0 :List(Text);
}

struct Discard {
  tensors @0 :List(Text);
}

struct ProofFailed {
  tensor @0 :Text;
  reason @1 :Text;
  lastGoodS @2 :UInt32;
}

struct ProofReport {
  parts @0 :UInt32;
  proven @1 :UInt32;
  oldestS @2 :UInt32;
  roundS @3 :UInt32;
}

struct RunCanary {
  replica @0 :UInt32;
  run @1 :UInt64;
  prompt @2 :List(Int32);
  generate @3 :UInt32;
}

struct CanaryResult {
  replica @0 :UInt32;
  run @1 :UInt64;
  tokens @2 :List(Int32);
  digests @3 :List(UInt64);
  error :union {
    none @4 :Void;
    value @5 :Error;
  }
  noRoom @6 :Bool;
}

struct ForgetPrefixes {
  replica @0 :UInt32;
}
