#include "tools/troupe/http/http_response.h"

#include <doctest/doctest.h>

#include <string>

#include "tests/tools/http/read_whole.h"
#include "tools/troupe/http/limits.h"
#include "tools/troupe/http/url.h"

namespace troupe::http {
namespace {

TEST_CASE("an answer is the same in whatever pieces it comes") {
  struct Case {
    std::string bytes, body;
    bool keep_alive;
  };
  const Case cases[] = {
      {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "hello", true},
      {"HTTP/1.1 200 OK\nContent-Length:5\n\nhello", "hello", true},
      {"HTTP/1.1 200\r\nTransfer-Encoding: Chunked\r\n\r\n3;a=b\r\nhel\r\n2\r\nlo\r\n0\r\nX: "
       "y\r\n\r\n",
       "hello", true},
      {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "", true},
      {"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n", "", false},
      {"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\nx", "x", true},
      {"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx", "x", false},
      {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nxHTTP/1.1", "x", false},
      {"HTTP/1.1 200 OK\r\n\r\nuntil the end", "until the end", false},
  };
  for (const Case& c : cases) {
    CAPTURE(c.bytes);
    for (std::size_t piece = 1; piece <= c.bytes.size(); ++piece) {
      const ReadWhole read = read_whole(c.bytes, piece);
      CHECK(read.status.ok());
      CHECK(read.done);
      CHECK(read.body == c.body);
      // What comes after the end is only seen by who has it in the same piece.
      if (piece == c.bytes.size()) CHECK(read.keep_alive == c.keep_alive);
    }
    for (std::size_t cut = 0; cut < c.bytes.size(); ++cut) {
      const ReadWhole read = read_whole(c.bytes.substr(0, cut), 7);
      CHECK(read.status.ok() == (read.done && c.body.starts_with(read.body)));
    }
  }
}

TEST_CASE("what is no HTTP is told, and bounds are bounds") {
  const std::string head = "HTTP/1.1 200 OK\r\n";
  const std::string chunked = head + "Transfer-Encoding: chunked\r\n\r\n";
  struct Case {
    std::string bytes;
    ErrorCode code;
  };
  const Case cases[] = {
      {"HTTP/2 200 OK\r\n\r\n", ErrorCode::kCorrupt},
      {"HTTP/1.1 2x0 OK\r\n\r\n", ErrorCode::kCorrupt},
      {"HTTP/1.1 600 OK\r\n\r\n", ErrorCode::kCorrupt},
      {"HTTP/1.1 101 Switching\r\n\r\n", ErrorCode::kCorrupt},
      {head + "no colon\r\n\r\n", ErrorCode::kCorrupt},
      {head + ": no name\r\n\r\n", ErrorCode::kCorrupt},
      {head + "Content-Length: -1\r\n\r\n", ErrorCode::kCorrupt},
      {head + "Content-Length: 1\r\nContent-Length: 2\r\n\r\n", ErrorCode::kCorrupt},
      {head + "Content-Length: 99999999999999999999\r\n\r\n", ErrorCode::kCorrupt},
      {head + "Content-Length: 9999999999\r\n\r\n", ErrorCode::kResourceExhausted},
      {head + "Transfer-Encoding: gzip, chunked\r\n\r\n", ErrorCode::kCorrupt},
      {chunked + "\r\n", ErrorCode::kCorrupt},
      {chunked + "-1\r\n", ErrorCode::kCorrupt},
      {chunked + "1\r\nxy\r\n", ErrorCode::kCorrupt},
      {chunked + "7fffffffffffffff\r\n", ErrorCode::kResourceExhausted},
      {chunked + std::string(kChunkLineBytesMax + 1, '0'), ErrorCode::kResourceExhausted},
      {head + "X: " + std::string(kHeadBytesMax, 'y'), ErrorCode::kResourceExhausted},
      {"", ErrorCode::kUnavailable},
  };
  for (const Case& c : cases)
    for (const std::size_t piece : {std::size_t{1}, std::size_t{4096}}) {
      CAPTURE(c.bytes.substr(0, 80));
      const ReadWhole read = read_whole(c.bytes, piece);
      REQUIRE(!read.status.ok());
      CHECK(read.status.error().code == c.code);
    }
}

TEST_CASE("addresses of servers") {
  const auto is = [](const char* text, const char* whole) {
    CAPTURE(text);
    const auto url = parse_url(text);
    REQUIRE(url.ok());
    CHECK(url->text() == whole);
  };
  is("http://127.0.0.1:8000", "http://127.0.0.1:8000");
  is("http://127.0.0.1:8000/v1/", "http://127.0.0.1:8000");
  is("https://host/api/v1", "https://host/api");
  is("http://[::1]:80/", "http://[::1]");
  for (const char* wrong :
       {"", "host:80", "http://", "http://:80", "http://a:0", "http://a:99999", "http://a:8x",
        "http://[::1", "http://a b", "http://a?q", "http://u@a", "http://a\r\nb"})
    CHECK(!parse_url(wrong).ok());
}

}  // namespace
}  // namespace troupe::http
