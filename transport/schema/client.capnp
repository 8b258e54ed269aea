# Programs that ask the head: status, stop, embedding.
@0xe17bd7ab4d0d85a7;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("troupe::wire");

using import "error.capnp".Error;
using import "formation.capnp".ProtocolRange;
using import "generation.capnp".ClusterEvent;
using import "generation.capnp".GenerationEvent;
using import "generation.capnp".GenerationRequest;

struct ClientHello {
  protocol @0 :ProtocolRange;
  program @1 :Text;
}

struct ClientWelcome {
  session @0 :UInt32;
}

struct StatusQuery {
  query @0 :UInt64;
}

struct StatusReply {
  query @0 :UInt64;
  json @1 :Text;
}

struct StopQuery {
  query @0 :UInt64;
}

struct StopReply {
  query @0 :UInt64;
  pids @1 :List(Int32);
}

struct ClientGenerate {
  query @0 :UInt64;
  request @1 :GenerationRequest;
}

struct ClientCancel {
  query @0 :UInt64;
}

struct ClientGeneration {
  query @0 :UInt64;
  event @1 :GenerationEvent;
}

struct Subscribe {
}

struct ClusterNews {
  event @0 :ClusterEvent;
}

struct DrainQuery {
  query @0 :UInt64;
  node @1 :UInt32;
}

struct RebalanceQuery {
  query @0 :UInt64;
}

struct OperationProgress {
  query @0 :UInt64;
  done @1 :UInt64;
  total @2 :UInt64;
  text @3 :Text;
  finished @4 :Bool;
  error :union {
    none @5 :Void;
    value @6 :Error;
  }
}

struct CrashReport {
  query @0 :UInt64;
  node @1 :UInt32;
  incarnation @2 :UInt64;
  signal @3 :Int32;
  reason @4 :Text;
}
