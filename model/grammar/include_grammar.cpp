// A grammar that becomes a part of another one.
#include <algorithm>
#include <string>
#include <string_view>

#include "model/grammar/grammar_scanner.h"
#include "model/grammar/grammar_writer.h"

namespace troupe {
namespace {

/// Passes over what has no names in it: a literal, a class, a token, a number of times.
void skip_nameless(grammar::GrammarScanner& scan) {
  const auto skip_until = [&scan](std::string_view end) {
    while (!scan.at_end() && !scan.failed() && !scan.take(end)) scan.character();
  };
  if (scan.take("<[")) {
    skip_until("]>");
  } else if (scan.take("{")) {
    skip_until("}");
  } else if (scan.take("\"")) {
    skip_until("\"");
  } else if (scan.take("[")) {
    skip_until("]");
  } else {
    scan.character();
  }
}

}  // namespace

std::string GrammarWriter::include(std::string_view text) {
  const std::string prefix = reserve("of") + "-";
  grammar::GrammarScanner scan(text);
  while (!scan.at_end() && !scan.failed()) {
    const std::size_t begin = scan.position();
    scan.skip_space();
    rules_ += text.substr(begin, scan.position() - begin);
    const std::size_t here = scan.position();
    if (const std::string_view name = scan.name(); !name.empty()) {
      rules_.append(prefix).append(name);
    } else if (!scan.at_end()) {
      skip_nameless(scan);
      rules_ += text.substr(here, scan.position() - here);
    }
  }
  rules_ += text.substr(std::min(scan.position(), text.size()));
  rules_ += '\n';
  return prefix + "root";
}

}  // namespace troupe
