// A complete program that embeds Troupe.
//
//     embedding_example start MODEL_FOLDER    a cluster of its own, within this process
//     embedding_example connect JOIN_FILE     a client of a running cluster (STATE/join)
//
// Either way it does the same: it generates and waits, streams by callback, lets an actor generate,
// reads the status, and has an actor told what happens to the cluster.

#include <caf/event_based_actor.hpp>
#include <cstdio>
#include <future>
#include <iostream>
#include <string>

#include "actors/api/caf.h"      // for actors of one's own; takes seconds to compile
#include "actors/api/cluster.h"  // all that is needed without them

namespace {

/// A question as a chat; greedy, so that it always gets the same answer.
troupe::GenerationRequest ask(const std::string& question) {
  troupe::GenerationRequest request;
  request.prompt = std::vector<troupe::ChatMessage>{{"user", question}};
  request.temperature = 0.0f;
  return request;
}

/// Everything that can fail returns a Result or a Status: a value, or an error that says in a
/// sentence what happened and what to do.
int fail(const troupe::Error& error) {
  std::fprintf(stderr, "embedding_example: %s\n", error.message.c_str());
  return 1;
}

/// Waits for the whole answer.
bool generate_and_wait(troupe::Cluster& cluster) {
  const auto answer = cluster.generate(ask("What is brandy?"));
  if (!answer.ok()) return fail(answer.error()), false;
  const troupe::Completion& choice = answer->choices.front();
  const char* finish = choice.finish == troupe::FinishReason::kStop ? "stop" : "length";
  std::printf("blocking: %zu prompt tokens, %zu tokens, %s: %s\n", answer->prompt_tokens.size(),
              choice.tokens.size(), finish, choice.text.c_str());
  return true;
}

/// Gets the answer piece by piece. The callback runs in a thread of the cluster and must not block.
bool stream(troupe::Cluster& cluster) {
  std::string text;
  int pieces = 0;
  std::promise<void> done;
  const auto number =
      cluster.stream(ask("What is a river?"), [&](const troupe::GenerationEvent& event) {
        text += event.text;
        ++pieces;
        if (event.error) text += event.error->message;
        if (event.request_done || event.error) done.set_value();
      });
  if (!number.ok()) return fail(number.error()), false;
  done.get_future().wait();
  std::printf("streamed: in %d pieces: %s\n", pieces, text.c_str());
  return true;
}

/// An actor that asks a Generator and gets the tokens as messages. It could as well be one of the
/// program's own typed actors: the generator takes any handle.
caf::behavior asking_actor(caf::event_based_actor* self, const troupe::Generator& generator,
                           const std::string& question, std::promise<std::string>* answer) {
  auto text = std::make_shared<std::string>();
  self->request(generator, caf::infinite, ask(question), caf::actor_cast<caf::actor>(self))
      .then([](std::uint64_t) { /* accepted; this number would cancel it */ },
            [=](const caf::error& error) {
              answer->set_value(self->system().render(error));
              self->quit();
            });
  return {
      [=](std::uint64_t, const troupe::GenerationEvent& event) {
        *text += event.text;
        if (event.error) *text += event.error->message;
        if (!event.request_done && !event.error) return;
        answer->set_value(*text);
        self->quit();
      },
  };
}

bool generate_in_an_actor(troupe::Cluster& cluster) {
  // The cluster's own CAF system; a program's actors live there beside Troupe's.
  const troupe::Generator generator = troupe::spawn_generator(cluster);
  std::promise<std::string> answer;
  cluster.system().spawn(asking_actor, generator, "What is a garden?", &answer);
  std::printf("actor: %s\n", answer.get_future().get().c_str());
  return true;
}

/// An actor that hears when nodes join or are lost, when placements change, and of the end.
caf::behavior watching_actor(caf::event_based_actor*) {
  return {
      [](const troupe::ClusterEvent& event) {
        std::printf("event: %s: %s\n", event.kind.c_str(), event.text.c_str());
        std::fflush(stdout);
      },
  };
}

bool run(troupe::Cluster& cluster) {
  const auto watching = troupe::subscribe(cluster, cluster.system().spawn(watching_actor));
  if (!watching.ok()) return fail(watching.error()), false;

  if (!generate_and_wait(cluster) || !stream(cluster) || !generate_in_an_actor(cluster))
    return false;

  // What is wrong with a request is said in a sentence.
  troupe::GenerationRequest bad = ask("What is brandy?");
  bad.temperature = -1.0f;
  std::printf("refused: %s\n", cluster.generate(bad).error().message.c_str());

  const auto status = cluster.status_json();
  if (!status.ok()) return fail(status.error()), false;
  std::printf("status: %s\n", status->c_str());
  std::fflush(stdout);
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc == 3 ? argv[1] : "";
  if (mode == "start") {
    troupe::LocalClusterOptions options;
    options.engine.model = argv[2];
    options.threads = 1;
    const auto cluster = troupe::Cluster::start(options);
    if (!cluster.ok()) return fail(cluster.error());
    if (!run(**cluster)) return 1;
    std::cin.get();  // what the program's signals do is seen from outside
  } else if (mode == "connect") {
    const auto cluster = troupe::Cluster::connect(argv[2]);
    if (!cluster.ok()) return fail(cluster.error());
    if (!run(**cluster)) return 1;
    std::cin.get();  // until the input ends, the actor tells what happens to the cluster
  } else {
    std::fprintf(stderr, "usage: embedding_example start MODEL_FOLDER | connect JOIN_FILE\n");
    return 2;
  }
  std::printf("done\n");
}
