#pragma once

#include "tools/troupe/http/http_client.h"
#include "tools/troupe/http/limits.h"
#include "tools/troupe/http/url.h"

/// The HTTP client's names, as this folder calls them.
namespace troupe::bench {

using http::ask;
using http::HttpAnswer;
using http::HttpClient;
using http::HttpHead;
using http::HttpReceiver;
using http::HttpRequest;
using http::HttpResponse;
using http::kAnswerBytesMax;
using http::parse_url;
using http::Url;

}  // namespace troupe::bench
