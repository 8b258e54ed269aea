#include "actors/head/open_journal.h"

#include <algorithm>
#include <utility>

#include "actors/head/head_crashes.h"
#include "actors/head/journal_folder.h"
#include "model/grammar/compiled_grammar.h"
#include "runtime/counted.h"
#include "runtime/log.h"

namespace troupe {
namespace {

std::string name_of(const std::optional<Numerics>& numerics) {
  return numerics ? std::string(to_string(*numerics)) : std::string();
}

OpenJournal::GoingOn going_on(const Journal& journal) {
  OpenJournal::GoingOn out;
  for (const auto& [id, request] : journal.all()) {
    if (request.ended) continue;
    ++out.requests;
    const PreparedRequest& prepared = *request.prepared;
    out.longest = std::max(out.longest, static_cast<std::int64_t>(prepared.prompt.size()) +
                                            static_cast<std::int64_t>(prepared.max_tokens));
  }
  return out;
}

}  // namespace

std::vector<std::string> notes_of(const OpenJournal::GoingOn& going_on,
                                  std::int64_t max_model_len) {
  std::vector<std::string> notes;
  if (going_on.requests == 0) return notes;
  notes.push_back(counted(going_on.requests, "request") +
                  " that an earlier life of the head had accepted " +
                  (going_on.requests == 1 ? "goes on." : "go on."));
  if (going_on.longest > max_model_len)
    notes.push_back("They may become " + std::to_string(going_on.longest) +
                    " tokens long: every replica must hold as many (--kv-cache-memory) until the "
                    "head begins again without them, though new ones get the " +
                    std::to_string(max_model_len) + " of --max-model-len.");
  return notes;
}

Result<OpenJournal> open_journal(const OpenJournal::Options& options, KnownState& known) {
  const auto numerics = options.wanted ? options.wanted : known.numerics;
  auto found = journal_folder::read(*options.files, options.folder,
                                    {options.model, options.cluster, name_of(numerics),
                                     name_of(known.numerics), CompiledGrammar::kMasksVersion});
  if (!found.ok()) return found.error();
  const auto crashes = read_head_crashes(*options.files, options.folder);
  if (!crashes.ok()) return crashes.error();
  for (std::string& note : blame(*crashes, found->journal))
    found->notes.push_back(std::move(note));
  for (const std::string& note : found->notes) logger().warn("{}", note);
  if (!numerics && !found->numerics.empty()) known.numerics = parse_numerics(found->numerics);
  journal_format::Heading heading{options.model, options.cluster,
                                  name_of(numerics ? numerics : known.numerics),
                                  std::max(options.incarnation.value, found->term),
                                  found->journal.next_request(), found->journal.next_sequence()};
  heading.masks = CompiledGrammar::kMasksVersion;
  const OpenJournal::GoingOn goes_on = going_on(found->journal);
  return OpenJournal{std::move(found->journal), goes_on, found->next_file,
                     {options.files, options.folder, std::move(heading), std::move(found->damaged),
                      options.random, false}};
}

}  // namespace troupe
