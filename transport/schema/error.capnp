# Why something failed: a code for programs, a sentence for people.
@0xd727ed2e52e646af;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("troupe::wire");

enum ErrorCode {
  invalidArgument @0;
  notFound @1;
  corrupt @2;
  refused @3;
  resourceExhausted @4;
  unavailable @5;
  deadlineExceeded @6;
  cancelled @7;
  internal @8;
}

struct Error {
  code @0 :ErrorCode;
  message @1 :Text;
}
