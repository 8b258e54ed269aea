// make_known_answers > kernels/known_answers.inc: the answers that the plain twins give.
#include <cstdio>

#include "runtime/float_mode.h"
#include "tests/kernels/twin.h"

using namespace troupe;
using namespace troupe::kernels;

int main() {
  set_float_mode();
  std::printf("// Made by tests/kernels/make_known_answers; change what it was made from.\n");
  for (std::size_t i = 0; i < known_questions().size(); ++i) {
    std::printf("    // %s\n    {", to_string(known_questions()[i]).c_str());
    const char* between = "";
    for (const Numerics n : exact_numerics()) {
      std::printf("%s0x%016llxull", between, static_cast<unsigned long long>(twin_answer(n, i)));
      between = ",\n     ";
    }
    std::printf("},\n");
  }
}
