#include "tools/troupe/failure.h"
#include "tools/troupe/program.h"
#include "tools/troupe_testing/test_doubles.h"

int main(int argc, char** argv) {
  using namespace troupe::cli;
  const auto doubles = TestDoubles::from_environment();
  if (!doubles.ok()) return fail_with(doubles.error());
  return run_program(argc, argv, (*doubles)->doubles());
}
