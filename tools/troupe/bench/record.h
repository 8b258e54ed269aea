#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace troupe::bench {

/// What came of one request. Times are in seconds; moments count from the beginning of the run.
struct RequestRecord {
  double due_s = 0;           ///< when the arrivals wanted it sent
  double start_s = 0;         ///< when it was sent; later where it waited for --max-concurrency
  double ttft_s = 0;          ///< from start to the first token; 0: none came
  double latency_s = 0;       ///< from start to the last token
  double ended_s = 0;         ///< when it was over, as a success or not
  std::vector<float> itls_s;  ///< between one piece of the answer with tokens and the next

  std::uint64_t prompt_tokens = 0, output_tokens = 0;
  std::uint64_t pieces = 0;      ///< of the answer, that had tokens
  std::uint64_t tokens_max = 0;  ///< asked for
  bool usage_told = false;       ///< output_tokens are the server's word; else pieces
  bool usage_doubtful = false;   ///< the server's word contradicts what came, and was not taken

  bool started = false;  ///< was sent
  bool cut = false;      ///< the run was ended before its answer was whole
  bool ok = false;
  int status = 0;  ///< of HTTP; 0: no answer
  int retries = 0;
  std::string error;  ///< one line, if it is not ok
  std::string text;

  /// Whether several tokens all came at one moment, as in one piece or through a proxy that holds
  /// answers back: how long one of them takes was not seen.
  bool at_once() const { return output_tokens > 1 && latency_s <= ttft_s; }
  /// Time per output token after the first; 0 for answers of one token.
  double tpot_s() const {
    return output_tokens > 1 ? (latency_s - ttft_s) / static_cast<double>(output_tokens - 1) : 0;
  }
};

/// Something that happened while the run was on, as a mark on its time line.
struct Mark {
  double at_s = 0;
  std::string kind;  ///< the server's name for it, or "kill"
  std::string text;
};

}  // namespace troupe::bench
