# Rows on their way to the routed experts and back.
@0x83ccf3a9db21cb49;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("troupe::wire");

struct ExpertPair {
  row @0 :UInt32;
  expert @1 :Int32;
}

# The tensor goes beside the header: wire type [rows, hidden].
struct Dispatch {
  call @0 :UInt64;
  version @1 :UInt64;
  layer @2 :Int32;
  rows @3 :UInt32;
  pairs @4 :List(ExpertPair);
  express @5 :Bool;
}

# The tensor goes beside the header: wire type [pairs, hidden].
struct ExpertOutput {
  call @0 :UInt64;
  pairs @1 :UInt32;
}

struct NotHere {
  call @0 :UInt64;
  experts @1 :List(Int32);
  reason @2 :Text;
}

struct ExpertProgress {
  call @0 :UInt64;
}
