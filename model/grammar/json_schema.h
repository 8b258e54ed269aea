#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "model/grammar/grammar_writer.h"
#include "model/grammar/json_document.h"
#include "model/grammar/number_text.h"
#include "model/grammar/text_automaton.h"
#include "runtime/result.h"

namespace troupe {

/// Writes the rules for JSON that a schema says yes to.
///
/// What must hold of a value is a set of schemas. Keywords beside each other, allOf and $ref only
/// make it larger; anyOf, oneOf, not, if and dependencies offer alternatives, one of which joins
/// it. Each set becomes one rule, however often it is met, so that recursion ends and nothing is
/// written twice. Members and items have sets of their own, made of what each schema says of them.
///
/// An answer is always right; not all that is right can be written. Members come in the order in
/// which the schema names them, others after them; names and constant texts are written raw where
/// JSON lets them be; numbers have bounded digits (number_text.h), white space is bounded. A name
/// that the schema does not know may come twice: readers keep the last, and each is checked.
///
/// An object that a format writes with tags is made of the same sets, in another form each.
///
/// The first error ends the work: after it, functions return what is harmless.
class JsonSchema {
 public:
  static constexpr std::size_t kSetsMax = 20'000;      ///< more combinations are refused
  static constexpr int kDepthMax = 250;                ///< of sets that need each other
  static constexpr std::size_t kStepsMax = 1'000'000;  ///< looks at a schema, for a grammar
  static constexpr std::size_t kBytesOfStep = 16;      ///< so many copied are one
  static constexpr std::size_t kMakingOfStep = 16;     ///< so much TextAutomaton::work(), too
  static constexpr std::size_t kDigitsMax = 400;       ///< of a number that bounds others

  /// `steps`: looked at a schema so far, for all documents of a grammar. `tags`: the root is an
  /// object that is written with these; nothing: JSON.
  JsonSchema(GrammarWriter& writer, JsonDocument& document, std::size_t& steps,
             const TaggedMembers* tags = nullptr);
  /// The rule for the document's root.
  Result<std::string> write();

 private:
  using Node = JsonNode;
  using Set = std::vector<const Node*>;
  /// An expression; nothing if no value fits.
  using Text = std::optional<std::string>;
  /// What a value is written as.
  enum class Form : unsigned char {
    kJson,
    kMembers,  ///< an object's members in tags
    kText,     ///< between tags, a text without quotes
    kEither,   ///< between tags, JSON, or a text that is none
  };
  enum class Answer : unsigned char { kNo, kYes, kUnknown };
  enum Type : unsigned {
    kNull = 1,
    kBoolean = 2,
    kInteger = 4,
    kFraction = 8,
    kString = 16,
    kArray = 32,
    kObject = 64,
    kAllTypes = 127
  };

  /// A schema object taken apart.
  struct Parts {
    const Node* plain = nullptr;  ///< its keywords about the value itself, all known and checked
    Set also;                     ///< schemas that must hold, too
    Set groups;                   ///< each an object with just anyOf or oneOf
    bool never = false;
  };
  /// A set of schemas taken apart.
  struct Flat {
    Set plain, groups;
    bool never = false;
    unsigned types = kAllTypes;
  };
  struct Rule {
    std::string name;
    bool done = false, never = false;
  };
  struct Range {
    std::size_t min = 0, max = Regex::kUnbounded;
    bool empty() const { return min > max; }
  };

  // json_schema.cpp: sets of schemas and their rules
  Text value(const Set& schemas, Form form = Form::kJson);
  Text rule_text(const Flat& flat, Form form);
  Text one_of_values(const Flat& flat, const Node& values, Form form);
  Text by_type(const Flat& flat, Form form);
  const Node& place_of(const Flat& flat) const;
  Flat flatten(const Set& schemas);
  void fail(const Node& at, const std::string& what);
  void unsupported(const Node& schema, std::string_view keyword, std::string_view how = "");
  bool work(const Node& at, std::size_t steps);
  /// Counts what an automaton took to be made, or to turn out too large.
  template <class Made>
  bool charge(const Node& at, const Result<Made>& made) {
    return work(at, 1 + (made ? made->work() : TextAutomaton::kStepsMax) / kMakingOfStep);
  }
  void forgive();
  Text written(const TextAutomaton& states, Spelling spelling, const Node& place);
  bool failed() const { return !status_.ok(); }
  bool spent() const { return steps_ > kStepsMax; }
  std::string constant(const Node& value);

  // json_schema_parts.cpp: what a schema object says
  const Parts& parts(const Node& schema);
  void take_apart(const Node& schema, Parts& out);
  void add_keyword(const Node& schema, std::size_t i, Node& plain, Parts& out);
  void check_keyword(const Node& schema, std::string_view key, const Node& value);
  void check_schema(const Node& schema);
  void check_loops(const Node& schema, int depth);
  unsigned type_mask(const Node& plain);
  static bool constrains(std::string_view key);

  // json_schema_refs.cpp
  const Node* target(const Node& schema, const std::string& reference);
  void collect_ids();
  std::string base_of(const Node& node);

  // json_schema_logic.cpp: alternatives, and what they exclude
  Set alternatives(const Node& group, const Set& beside);
  Set negated(const Node& schema, int depth);
  void negate_keyword(const Node& schema, std::string_view key, const Node& value, Set& out);
  Node& make(Node::Kind kind, const Node& place);
  const Node& made(const Node& place, std::vector<std::pair<std::string, const Node*>> members);
  const Node& made_text(const Node& place, std::string text);
  const Node& made_number(const Node& place, std::string digits);
  const Node& made_list(const Node& place, const Set& items);
  const Node& made_group(const Node& place, const char* key, const Node& list);
  const Node& made_not(const Node& schema);
  bool disjoint(const Set& a, const Set& b, int depth);
  bool disjoint_flat(const Flat& a, const Flat& b, int depth);
  bool disjoint_strings(const Flat& a, const Flat& b);
  bool disjoint_objects(const Flat& a, const Flat& b, int depth);

  // json_schema_check.cpp: whether a given value fits
  Answer fits(const Node& value, const Node& schema, int depth);
  Answer fits_plain(const Node& value, const Node& plain, int depth);
  Answer fits_contains(const Node& value, const Node& plain, int depth);
  Answer fits_string(const std::string& text, const Node& plain);
  Answer fits_members(const Node& value, const Node& plain, int depth);
  Answer name_fits(const std::string& name, const Set& schemas);

  // json_schema_numbers.cpp, json_schema_strings.cpp, json_schema_arrays.cpp
  NumberRange number_range(const Set& plain, bool written = false);
  struct Steps {
    bool whole = false;            ///< one of them is a whole number
    std::size_t zeros = 0;         ///< at the end, for powers of ten
    bool divides_doubles = false;  ///< readers make doubles of the numbers, too
    std::set<std::pair<std::size_t, std::size_t>> all;  ///< units of a last place, and places
  };
  std::optional<Steps> steps_of(const Set& plain);
  std::vector<NumberRange> ranges(const Set& plain);
  std::string number_expression(const Regex& regex);
  Text numbers(const Flat& flat);
  Text numbers_within(const NumberRange& range, const Steps& steps, bool integers, bool fractions,
                      const Node& place);
  Text both(const Regex& a, const Regex& b, const Node& place);
  Text strings(const Flat& flat);
  /// What the plain schemas of strings ask of them, as one automaton or as an expression.
  struct StringRules {
    std::vector<Regex> wholes, searches, not_searches;
    std::vector<std::string> not_texts;
    Range length;
    bool free() const { return wholes.empty() && searches.empty() && not_searches.empty(); }
    bool maybe = false;  ///< all texts that one dialect of expressions would take
  };
  StringRules string_rules(const Set& plain);
  Text string_content(const StringRules& rules, const Node& place, Spelling spelling);
  std::optional<TextAutomaton> automaton(const StringRules& rules, const Node& place);
  const Regex* pattern(const Node& schema, const std::string& text);
  using Match = TextAutomaton::Match;
  using Reading = TextAutomaton::Reading;
  const TextAutomaton* automaton_of(const Node& schema, const std::string& expression, Match match,
                                    Reading reading);
  Range counts(const Set& plain, const char* min_key, const char* max_key);
  Text arrays(const Flat& flat);
  /// What "contains" asks for.
  struct Contained {
    Set wanted;  ///< an item for each must be there
    Set others;  ///< what all other items must be, where they are counted
    bool empty() const { return wanted.empty() && others.empty(); }
    bool alike() const { return std::set(wanted.begin(), wanted.end()).size() <= 1; }
  };
  Contained contained(const Set& plain);
  std::optional<std::map<std::size_t, const Node*>> places_of(const Contained& contained,
                                                              const Set& plain, std::size_t listed,
                                                              std::size_t max);
  std::optional<Set> listed_values(const Set& schemas);
  bool type_alone(const Set& schemas);
  const Set& kinds(unsigned types, bool fine);
  Set item_kinds(const Set& schemas, const Range& count, std::size_t& least);
  Set kinds_by_member(const Set& schemas);
  Text unique_items(const Flat& flat, const Range& count, bool prefixed);
  Text any_order(const Set& values, const Range& count);
  Set item_schemas(const Set& plain, std::size_t index);

  // json_schema_tags.cpp: members in tags
  Form member_form(const std::string& name) const;
  Text constant_in(const Node& value, Form form);
  bool may_stand(const std::string& text, Form form);
  Text plain_strings(const Flat& flat, Form form);
  Text plain_content(StringRules rules, const Node& place, Form form);
  std::string counted_text(const Range& length);
  std::string member(const std::string& name, const std::string& value, Form object);
  Text name_of(const std::string& name, const Node& place, Form object);

  // json_schema_objects.cpp
  struct Member {
    std::string name, text;  ///< text: name, colon and value
    bool required = false;
  };
  struct Members {
    std::vector<Member> known;
    std::string other;  ///< a member with any other name; empty if there can be none
    Range count;
    std::string_view keyword = "properties";  ///< that asks for it
    bool counted = false;  ///< whether `count` says more than the members themselves
  };
  Text objects(const Flat& flat, Form form);
  bool known_members(const Flat& flat, Members& out, Form form);
  static bool names_all(const Flat& flat, const Members& members);
  void other_members(const Flat& flat, Members& out, Form form);
  Text other_name(const Flat& flat, std::optional<TextAutomaton> texts, Form form);
  /// What stands around members: expressions.
  struct Brackets {
    std::string open, comma, close;
    std::string space;  ///< behind each of them but the last
  };
  Brackets brackets(char open, char close);
  Text member_chain(const Members& members, const Node& place, const Brackets& around);
  const TextAutomaton* name_pattern(const Node& schema, const std::string& text, Reading reading);
  std::string shared_rule(std::string_view hint, const std::string& expression);
  /// What must hold of the member with this name. Nothing: whether a pattern is meant is not clear.
  std::optional<Set> member_schemas(const Set& plain, const std::string& name);
  std::vector<std::string> member_names(const Set& plain);
  std::set<std::string, std::less<>> required_names(const Set& plain);
  Set name_schemas(const Set& plain);

  GrammarWriter& writer_;
  JsonDocument& document_;
  const TaggedMembers* const tags_;
  Status status_;
  std::unordered_map<const Node*, Parts> parts_;
  std::unordered_map<const Node*, bool> loops_checked_;       ///< false while it is being looked at
  std::unordered_map<const Node*, const Node*> not_;          ///< what made_not() made
  std::map<std::vector<const Node*>, const Node*> branches_;  ///< of oneOf, with what they exclude
  std::map<std::vector<std::size_t>, Rule> rules_;
  std::unordered_map<std::string, Regex> patterns_;
  std::map<std::tuple<std::string, Match, Reading>, Result<TextAutomaton>> automata_;
  std::unordered_map<std::string, const Node*> ids_;
  std::map<std::pair<unsigned, bool>, Set> kinds_;
  /// Rules by their expressions.
  std::unordered_map<std::string, std::string> shared_;
  bool recursive_ = false;  ///< some set's rule needs itself
  bool again_ = false;      ///< a rule was named that turned out to be never
  std::size_t& steps_;
  std::size_t disjoint_steps_ = 0;
  int depth_ = 0;
};

// Keywords of our own, for what a schema excludes. They are not read from documents.
namespace schema_keyword {
inline constexpr std::string_view kTypes = "types of";              ///< a number: a set of types
inline constexpr std::string_view kNotValues = "not one of";        ///< as enum
inline constexpr std::string_view kNotPattern = "not the pattern";  ///< as pattern
}  // namespace schema_keyword

/// The expression for a format's texts; nothing for one that is only an annotation here. Where the
/// length is bounded, for less texts, so that it needs few states: `length_max` may become less.
std::optional<std::string> format_pattern(std::string_view format, std::size_t length_min,
                                          std::size_t& length_max);

}  // namespace troupe
