#pragma once

#include <string_view>

#include "actors/gateway/api.h"

namespace troupe {

/// The console for a browser: one page, made from page/console.html at build time.
std::string_view console_html();

/// The page with the headers that keep it harmless: it may run its own script, identified by its
/// hash, and talk to this server; nothing else, whatever text it shows.
HttpReply console_page();

}  // namespace troupe
