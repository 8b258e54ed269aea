#include <unistd.h>

#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <thread>

#include "model/model_path.h"
#include "runtime/clock.h"
#include "tools/troupe/call.h"
#include "tools/troupe/commands.h"
#include "tools/troupe/pull/hub_cache.h"
#include "tools/troupe/pull/pull.h"

namespace troupe::cli {
namespace {

struct PullCommandOptions {
  pull::PullOptions pull;
  std::string model, reader;
  std::vector<std::string> endpoints;
  std::string cache;
  double timeout = 30;
};

constexpr Duration kShowInterval = std::chrono::milliseconds(200);

/// A line on the terminal that says how far it is; nothing where there is none.
class PullLine {
 public:
  explicit PullLine(const pull::PullProgress& progress) : progress_(progress) {
    if (::isatty(STDERR_FILENO)) thread_ = std::thread([this] { run(); });
  }
  ~PullLine() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    if (!thread_.joinable()) return;
    thread_.join();
    std::fputs("\r\033[K", stderr);
  }

 private:
  void run() {
    const TimePoint started = now();
    std::unique_lock lock(mutex_);
    std::uint64_t before = 0;
    bool first = true;
    while (!changed_.wait_for(lock, kShowInterval, [this] { return over_; })) {
      if (progress_.bytes_total == 0) continue;
      // What an earlier run has left is not this one's speed.
      if (std::exchange(first, false)) before = progress_.bytes;
      const double seconds = std::chrono::duration<double>(now() - started).count();
      const double bytes = static_cast<double>(progress_.bytes);
      std::fprintf(stderr, "\r\033[K%.2f of %.2f GB, %.1f MB/s, %llu of %llu files", bytes / 1e9,
                   static_cast<double>(progress_.bytes_total) / 1e9,
                   (bytes - static_cast<double>(before)) / 1e6 / seconds,
                   static_cast<unsigned long long>(progress_.files),
                   static_cast<unsigned long long>(progress_.files_total));
      std::fflush(stderr);
    }
  }

  const pull::PullProgress& progress_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;  // guarded by mutex_
  std::thread thread_;
};

Status prepare(PullCommandOptions& o) {
  auto named = parse_hub_model(o.model);
  if (!named)
    return invalid_argument("'" + o.model +
                            "' is no model; expected ORG/NAME or ORG/NAME@REVISION, such as "
                            "deepseek-ai/DeepSeek-V3.");
  o.pull.for_head = o.reader == "head";
  if (!o.reader.empty() && !o.pull.for_head)
    return invalid_argument("--for must be head, not '" + o.reader + "'.");
  o.pull.name = std::move(named->name);
  o.pull.revision = std::move(named->revision);
  if (o.endpoints.empty()) {
    const char* endpoint = std::getenv("HF_ENDPOINT");
    o.endpoints.push_back(endpoint && *endpoint ? endpoint : "https://huggingface.co");
  }
  for (const auto& text : o.endpoints) {
    auto url = http::parse_url(text, "--endpoint");
    if (!url.ok()) return url.error();
    o.pull.endpoints.push_back(std::move(*url));
  }
  if (const char* token = std::getenv("HF_TOKEN")) o.pull.token = token;
  const http::Url& first = o.pull.endpoints.front();
  const bool here = first.host == "127.0.0.1" || first.host == "::1" || first.host == "localhost";
  if (!o.pull.token.empty() && !first.tls && !here)
    return invalid_argument("HF_TOKEN is not sent to " + first.text() +
                            " without TLS; unset it, or put an https:// endpoint first.");
  for (const char c : o.pull.token)
    if (c <= ' ' || c > '~') return invalid_argument("HF_TOKEN holds a character no token has.");
  o.pull.cache = std::filesystem::absolute(o.cache.empty() ? pull::default_cache()
                                                           : std::filesystem::path(o.cache));
  o.pull.silence = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(o.timeout));
  return {};
}

int run(PullCommandOptions& o) {
  if (const Status good = prepare(o); !good.ok()) return fail_with(good.error());
  pull::PullProgress progress;
  Result<std::filesystem::path> folder = [&] {
    const PullLine line(progress);
    return pull::pull(o.pull, progress);
  }();
  if (!folder.ok()) return fail(folder.error());
  std::printf("%s\n", folder->c_str());
  return kDone;
}

}  // namespace

Command pull_command() {
  auto o = std::make_shared<PullCommandOptions>();
  return {
      .name = "pull",
      .description = "Fetch a checkpoint from the hub into the cache, and print its folder",
      .examples =
          "  troupe pull deepseek-ai/DeepSeek-V2-Lite-Chat\n"
          "  troupe pull ORG/NAME@v1.0 --exclude 'original/*'\n"
          "  troupe pull ORG/NAME --endpoint http://mirror.lan:8080 --endpoint "
          "https://huggingface.co\n"
          "  troupe pull ORG/NAME && troupe up --model ORG/NAME\n"
          "  troupe pull ORG/NAME --for head && troupe head --model ORG/NAME\n\n"
          "What was cut off goes on where it was. Every file is checked, and the folder appears "
          "whole.\n"
          "The cache is laid out as Hugging Face's own programs do: they find what is pulled, and "
          "what\n"
          "they fetched is known here by its name.\n"
          "A token for models that need one: $HF_TOKEN; it is told to the first endpoint only.",
      .flags = {{.name = "NAME",
                 .target = &o->model,
                 .help = "The model: ORG/NAME, or ORG/NAME@REVISION, a branch, a tag or a commit "
                         "(default: main)",
                 .required = true},
                {.name = "--endpoint",
                 .target = &o->endpoints,
                 .help = "Where from; may be repeated: mirrors, in the order in which they are "
                         "tried (default: $HF_ENDPOINT, else https://huggingface.co)",
                 .one_value_each = true},
                {.name = "--for",
                 .target = &o->reader,
                 .help = "head: everything but the weights' bytes, which a head reads only to "
                         "confirm what workers read; workers need all, since any expert may move "
                         "to any of them",
                 .values = {"head"}},
                {.name = "--include",
                 .target = &o->pull.include,
                 .help = "Only files like this, such as '*.safetensors'; may be repeated",
                 .one_value_each = true},
                {.name = "--exclude",
                 .target = &o->pull.exclude,
                 .help = "No files like this; may be repeated",
                 .one_value_each = true},
                {"--cache", &o->cache,
                 "Where to (default: $TROUPE_CACHE, $HF_HUB_CACHE, $HF_HOME/hub, "
                 "$XDG_CACHE_HOME/huggingface/hub, else ~/.cache/huggingface/hub)"},
                {.name = "--connections",
                 .target = &o->pull.connections,
                 .help = "Requests at a time (default: 8)",
                 .range = Range{1, 64}},
                {.name = "--timeout",
                 .target = &o->timeout,
                 .help = "Seconds that a server may be silent before it is given up (default: 30)",
                 .range = Range{0.1, 3600}}},
      .run = [o](const Call&) { return run(*o); },
      .keeps_state = false};
}

}  // namespace troupe::cli
