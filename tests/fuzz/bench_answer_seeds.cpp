#include "tests/fuzz/seeds.h"

namespace troupe::fuzz {

std::vector<std::string> made_seeds() {
  const std::string head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n";
  const std::string events =
      "data: {\"choices\":[{\"text\":\"a\",\"finish_reason\":null}]}\n\n"
      "data: {\"choices\":[{\"delta\":{\"content\":\"b\"},\"finish_reason\":\"stop\"}]}\n\n"
      "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":2}}\n\n"
      "data: [DONE]\n\n";
  return {
      head + "\r\n" + events,
      head + "Transfer-Encoding: chunked\r\n\r\n5;x=y\r\ndata:\r\n1\r\n \r\n0\r\nA: b\r\n\r\n",
      head + "Content-Length: 14\r\nConnection: close\r\n\r\ndata: [DONE]\n\n",
      "HTTP/1.1 103 Early\r\n\r\nHTTP/1.1 429 Busy\r\nRetry-After: 3\r\nContent-Length: "
      "2\r\n\r\n{}",
      "[{\"conversations\":[{\"value\":\"a long question\"},{\"value\":\"a long answer here\"}]}]",
      "http://[::1]:80/v1"};
}

}  // namespace troupe::fuzz
