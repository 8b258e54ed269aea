#include <cassert>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tools/troupe/bench/answer_reader.h"
#include "tools/troupe/bench/sharegpt.h"
#include "tools/troupe/bench/http.h"

/// Whatever a server sends, `troupe bench serve` makes one record of it, the same in whatever
/// pieces it comes.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace troupe::bench;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  for (const bool chat : {false, true}) {
    RequestRecord seen[2];
    for (const bool whole : {false, true}) {
      const std::size_t piece = whole ? size + 1 : 1;
      int ends = 0;
      AnswerReader reader({chat, 3, 100, {}}, [&](AnswerReader::Outcome outcome) {
        ++ends;
        seen[whole] = std::move(outcome.record);
      });
      HttpResponse response(
          {[&](const HttpHead& head) { return reader.on_head(head); },
           [&](std::string_view more) { return reader.on_body(more, troupe::TimePoint{}); }});
      troupe::Status status;
      for (std::size_t at = 0; at < size && status.ok() && !response.done(); at += piece)
        status = response.feed(bytes.substr(at, piece));
      if (status.ok()) status = response.finish();
      reader.on_end(std::move(status), troupe::TimePoint{});
      assert(ends == 1);
    }
    assert(seen[0].ok == seen[1].ok && seen[0].error == seen[1].error);
    assert(seen[0].pieces == seen[1].pieces && seen[0].output_tokens == seen[1].output_tokens);
    assert(seen[0].output_tokens <= 100 || !seen[0].usage_told);
  }
  (void)parse_sharegpt(bytes);
  (void)parse_url(bytes);
  return 0;
}
