#include "tools/troupe/program.h"

int main(int argc, char** argv) { return troupe::cli::run_program(argc, argv); }
