// The smallest program that embeds Troupe: answers one question.

#include <cstdio>

#include "actors/api/cluster.h"

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: outside MODEL_FOLDER QUESTION\n");
    return 2;
  }
  troupe::LocalClusterOptions options;
  options.engine.model = argv[1];
  const auto cluster = troupe::Cluster::start(options);
  if (!cluster.ok()) {
    std::fprintf(stderr, "%s\n", cluster.error().message.c_str());
    return 1;
  }
  troupe::GenerationRequest request;
  request.prompt = std::vector<troupe::ChatMessage>{{"user", argv[2]}};
  request.temperature = 0.0f;
  const auto answer = (*cluster)->generate(request);
  if (!answer.ok()) {
    std::fprintf(stderr, "%s\n", answer.error().message.c_str());
    return 1;
  }
  std::printf("%s\n", answer->choices.front().text.c_str());
}
