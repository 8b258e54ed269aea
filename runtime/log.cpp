#include "runtime/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>

namespace troupe {

Status init_log(const std::string& level) {
  const auto parsed = spdlog::level::from_str(level);
  if (parsed == spdlog::level::off && level != "off")
    return invalid_argument("'" + level +
                            "' is no --log-level; use trace, debug, info, warn, error or off.");
  auto logger = spdlog::stderr_color_mt("troupe");
  logger->set_pattern("%H:%M:%S.%e %^%l%$ %v");
  logger->set_level(parsed);
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
  return {};
}

}  // namespace troupe
