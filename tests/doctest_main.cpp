#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include "runtime/float_mode.h"

int main(int argc, char** argv) {
  // Tests compute on this thread, as a device does on its own.
  troupe::set_float_mode();
  return doctest::Context(argc, argv).run();
}
