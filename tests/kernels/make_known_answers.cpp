// make_known_answers > kernels/known_answers.inc: the answers that the plain twins give.
#include <cstdio>

#include "tests/kernels/twin.h"

using namespace troupe;
using namespace troupe::kernels;

int main() {
  std::printf("// Made by tests/kernels/make_known_answers; change what it was made from.\n");
  for (std::size_t i = 0; i < known_questions().size(); ++i) {
    std::printf("    // %s\n    {", to_string(known_questions()[i]).c_str());
    for (int n = 0; n < kNumericsCount; ++n)
      std::printf("%s0x%016llxull", n == 0 ? "" : n == 2 ? ",\n     " : ", ",
                  static_cast<unsigned long long>(twin_answer(static_cast<Numerics>(n), i)));
    std::printf("},\n");
  }
}
