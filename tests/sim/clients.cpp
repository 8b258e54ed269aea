#include "tests/sim/clients.h"

#include <algorithm>
#include <chrono>
#include <set>

#include "tests/sim/world.h"

namespace troupe::sim {

using namespace std::chrono_literals;

void Clients::begin(const std::vector<RequestSpec>& specs) {
  for (const RequestSpec& spec : specs) {
    Client client;
    client.spec = spec;
    client.keyed = clients_.size() % 4 != 0;
    for (std::uint32_t choice = 0; choice < spec.n; ++choice) {
      SamplingParams sampling = spec.sampling;
      sampling.choice = choice;
      client.expected.push_back(expected_of(spec.prompt, sampling, spec.max_tokens, spec.stops));
    }
    clients_.push_back(std::move(client));
    world_.loop.after(spec.at, [this, number = clients_.size() - 1] { ask(number); });
  }
}

void Clients::ask(std::size_t number) {
  Client& client = clients_[number];
  if (!waits_since()) progress_ = world_.loop.now();
  client.asked = true;
  // It may be accepted, and not hear so.
  client.may_differ |= world_.may_be_wrong();
  if (!world_.head.up()) return ask_again(number);
  client.ticket = next_ticket_++;
  tickets_[*client.ticket] = number;
  if (client.reads_on)
    read_on(number);
  else
    submit(number);
}

/// What follows what it has.
void Clients::read_on(std::size_t number) {
  const Client& client = clients_[number];
  RequestWanted wanted{.id = client.id, .owner = owner_of(number), .index = 0, .from = {}};
  for (const std::size_t tokens : client.tokens)
    wanted.from.push_back(static_cast<std::uint32_t>(tokens));
  world_.head.tell_router(AttachReader{*client.ticket, std::move(wanted)});
}

void Clients::submit(std::size_t number) {
  Client& client = clients_[number];
  PreparedRequest request;
  request.prompt = client.spec.prompt;
  request.sampling = client.spec.sampling;
  request.seed = client.spec.sampling.seed;
  request.max_tokens = client.spec.max_tokens;
  request.n = client.spec.n;
  if (client.spec.stops) request.stop_tokens = {kEos};
  request.timeout = client.spec.timeout;
  request.priority = static_cast<std::int32_t>(number % 5) - 2;
  client.id = "r" + std::to_string(*client.ticket);
  RequestName name{.id = client.id, .owner = owner_of(number), .body = {number, 0}};
  if (client.keyed) name.key = "k" + std::to_string(number);
  request.name = std::make_shared<const RequestName>(std::move(name));
  world_.head.tell_router(SubmitRequest{*client.ticket, std::move(request), 1});
}

void Clients::ask_again(std::size_t number) {
  world_.loop.after(world_.loop.pick_ms(50, 400), [this, number] { ask(number); });
}

void Clients::accepted(RequestAccepted accepted) {
  const auto ticket = tickets_.extract(accepted.ticket);
  if (!ticket) return world_.broken("A ticket was answered that nobody drew, or twice.");
  const std::size_t number = ticket.mapped();
  Client& client = clients_[number];
  if (!accepted.request.ok()) return refused(number, accepted.request.error());
  const std::uint64_t request = *accepted.request;
  readers_[*client.ticket] = number;
  client.request = request;
  const bool known = client.known = client.reads_on || accepted.name->id != client.id;
  client.id = accepted.name->id;
  // Its failure frees a key.
  const bool may_have_failed =
      client.spec.timeout < 3600s || client.spec.odd || world_.has_poison();
  if (client.told && !known && !client.cancelled && !may_have_failed)
    world_.broken("A request that its client has heard of was forgotten.");
  client.deadline =
      (known ? world_.head.started() : world_.loop.now()) + client.spec.timeout;
  if (!client.reads_on) {
    client.tokens.assign(client.spec.n, 0);
    client.finished.assign(client.spec.n, false);
  }
  if (!known) client.soonest = client.deadline;
  client.may_differ = (known && client.may_differ) || world_.may_be_wrong();
  client.told = client.told && known;
  world_.counters.resumed += known;
  progress_ = world_.loop.now();
  ++world_.counters.requests;
  if (client.spec.cancel_after > Duration{})
    world_.loop.after(client.spec.cancel_after,
                      [this, number, request] { cancel(number, request); });
}

void Clients::refused(std::size_t number, const Error& error) {
  Client& client = clients_[number];
  const bool nobody_has_it = client.reads_on && error.code == ErrorCode::kNotFound;
  if (error.code != ErrorCode::kUnavailable && !nobody_has_it)
    world_.broken("A request was refused: " + error.message);
  if (nobody_has_it && client.told && !client.cancelled)
    world_.broken("A request that its client has heard of was forgotten.");
  if (nobody_has_it) client.reads_on = client.told = false;
  ask_again(number);
}

void Clients::cancel(std::size_t number, std::uint64_t request) {
  if (clients_[number].request != request) return;
  clients_[number].cancelled = true;
  // Its leaving, or its wish that nobody has it.
  const bool leaves = clients_[number].leaves = number % 2 == 0;
  world_.head.tell_router(CancelRequest{request, leaves ? *clients_[number].ticket : 0});
}

void Clients::deliver(DeliverEvent delivery) {
  for (const std::uint64_t reader : delivery.readers) {
    const auto it = readers_.find(reader);
    if (it == readers_.end()) return world_.broken("News of a request that is over.");
    const std::size_t number = it->second;
    Client& client = clients_[number];
    // That it was too late before this head began.
    if (delivery.again) client.deadline = std::min(client.deadline, client.soonest);
    if (!refused(client, delivery.event)) {
      deliver(client, delivery.event);
      continue;
    }
    readers_.erase(it);
    client.request.reset();
    client.reads_on = false;
    ask_again(number);
  }
}

/// Its acceptance did not come to the disk, so it was none.
bool Clients::refused(const Client& client, const GenerationEvent& event) {
  if (!event.error || !event.error->message.starts_with("The journal cannot be written"))
    return false;
  ++world_.counters.refused;
  if (client.told || client.known) world_.broken("What was accepted was refused.");
  if (!world_.head.distrusts_disk()) world_.broken("A request was refused for a disk that works.");
  return true;
}

void Clients::deliver(Client& client, const GenerationEvent& event) {
  if (event.choice >= client.spec.n) return world_.broken("News of a choice that there is not.");
  progress_ = world_.loop.now();
  client.told = true;
  check_tokens(client, event);
  client.tokens[event.choice] += event.tokens.size();
  if (event.finish != FinishReason::kNone) client.finished[event.choice] = true;
  if (!event.request_done) return;
  check_end(client, event);
  const bool cancelled = event.error && event.error->code == ErrorCode::kCancelled;
  // Who leaves a request that has a key, or has outlived its head, ends nothing.
  const bool left = cancelled && client.leaves && (client.keyed || client.known);
  if (!world_.head.distrusts_disk() && !left)
    ends_[client.id] = {event.error.has_value(), !cancelled};
  end(client);
}

void Clients::check_restored(const Journal& journal) {
  std::set<std::string> there;
  for (const auto& [id, request] : journal.all()) {
    there.insert(request.prepared->name->id);
    check_restored(journal, request);
  }
  // The calendar steps with each life of a head, and no answer is older for that.
  for (const auto& [id, told] : ends_)
    if (told.kept && !there.contains(id))
      world_.broken("An answer is gone that its client has had.");
}

void Clients::check_restored(const Journal& journal, const Journal::Request& request) {
  const std::string& id = request.prepared->name->id;
  const auto client = std::ranges::find(clients_, id, &Client::id);
  const auto told = ends_.find(id);
  for (std::uint32_t choice = 0; choice < request.prepared->n; ++choice) {
    const auto* sequence = journal.find(SequenceId{request.first_sequence.value + choice});
    if (told != ends_.end() && !request.ended && sequence->finish == FinishReason::kNone)
      world_.broken("A request runs again that its client knows to be over.");
    if (client == clients_.end() || client->may_differ || request.error) continue;
    const auto& must = client->expected[choice].output;
    const auto same = [](TokenId is, const TokenOutput& token) { return is == token.token; };
    if (sequence->output.size() > must.size() ||
        !std::equal(sequence->output.begin(), sequence->output.end(), must.begin(), same))
      world_.broken("A token in the journal is not the one that it must be.");
  }
  if (told != ends_.end() && request.error.has_value() != told->second.error)
    world_.broken("A request ended otherwise than its client was told.");
}

void Clients::check_tokens(const Client& client, const GenerationEvent& event) {
  const Expected& expected = client.expected[event.choice];
  std::size_t at = client.tokens[event.choice];
  if (client.finished[event.choice] && !event.tokens.empty())
    world_.broken("Tokens came after the last.");
  for (const TokenOutput& token : event.tokens) {
    const bool right = at < expected.output.size() && token == expected.output[at];
    if (!right && !client.may_differ)
      return world_.broken("Token " + std::to_string(at) + " of a sequence of " +
                           std::to_string(expected.output.size()) +
                           " is not the one that it must be.");
    ++at;
    ++world_.counters.tokens;
  }
  if (event.finish != FinishReason::kNone && !client.may_differ &&
      (at != expected.output.size() || event.finish != expected.finish))
    world_.broken("A sequence ended at token " + std::to_string(at) + " of " +
                  std::to_string(expected.output.size()) + ".");
}

void Clients::check_end(const Client& client, const GenerationEvent& event) {
  if (event.error) {
    const bool wanted = event.error->code == ErrorCode::kCancelled && client.cancelled;
    const bool late =
        event.error->code == ErrorCode::kDeadlineExceeded && world_.loop.now() >= client.deadline;
    const bool given_up = event.error->message.find("The request was given up") == 0;
    if (given_up) ++world_.counters.given_up;
    // Beside a request that kills again and again, an innocent one may look like it.
    const bool odd = client.spec.odd && event.error->message == kOddTrouble;
    if (!wanted && !late && !odd && !(given_up && world_.has_poison()))
      world_.broken("A request failed: " + event.error->message);
    return;
  }
  if (client.spec.odd) world_.broken("A request was answered that has no numbers.");
  if (client.spec.poison) world_.broken("A request was answered that kills its workers.");
  for (const bool finished : client.finished)
    if (!finished) world_.broken("A request ended before its choices did.");
  ++world_.counters.finished;
}

void Clients::end(Client& client) {
  readers_.erase(*client.ticket);
  client.request.reset();
  client.over = true;
  ++over_;
}

void Clients::doubt() {
  for (Client& client : clients_) client.may_differ |= client.asked && !client.over;
}

void Clients::head_died() {
  for (const auto& [ticket, number] : std::exchange(readers_, {})) {
    clients_[number].request.reset();
    clients_[number].reads_on = !clients_[number].keyed;
    ask_again(number);
  }
  for (const auto& [ticket, number] : std::exchange(tickets_, {})) ask_again(number);
}

std::optional<TimePoint> Clients::waits_since() const {
  const bool any = std::any_of(clients_.begin(), clients_.end(),
                               [](const Client& client) { return client.asked && !client.over; });
  return any ? std::optional(progress_) : std::nullopt;
}

std::string Clients::describe() const {
  std::string text;
  for (const Client& client : clients_) {
    if (client.over) continue;
    text += "  a request of " + std::to_string(client.spec.prompt.size()) + " + " +
            std::to_string(client.spec.max_tokens) + " tokens ";
    text += client.request ? "has" : "is not accepted";
    for (const std::size_t tokens : client.tokens) text += " " + std::to_string(tokens);
    text += "\n";
  }
  return text;
}

}  // namespace troupe::sim
