#include "actors/control/join_token.h"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "actors/control/enrolment_text.h"
#include "actors/control/token_book.h"
#include "actors/control/wrong_secrets.h"
#include "tests/actors/control/support.h"

using namespace troupe;

namespace {

/// Of the cluster's CA.
const std::string& own_hash() {
  static const std::string hash = certificate_hash(own_credentials().head.ca_certificate);
  return hash;
}

std::string token_text() {
  const auto drawn = draw_join_token(own_hash());
  REQUIRE(drawn.ok());
  return format_join_token(*drawn);
}

struct BookFolder {
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("troupe-tokens-" + std::to_string(::getpid()));
  BookFolder() { std::filesystem::create_directories(path); }
  ~BookFolder() { std::filesystem::remove_all(path); }

  std::string text() const {
    std::stringstream all;
    all << std::ifstream(path / "tokens").rdbuf();
    return all.str();
  }
};

}  // namespace

TEST_CASE("a token reads as it was written, and cut anywhere it is none") {
  const std::string text = token_text();
  const auto token = parse_join_token(text);
  REQUIRE(token.ok());
  CHECK(token->ca_hash == own_hash());
  CHECK(format_join_token(*token) == text);
  for (std::size_t size = 0; size < text.size(); ++size) {
    const auto cut = parse_join_token(text.substr(0, size));
    CHECK_FALSE(cut.ok());
    CHECK(cut.error().message.find(token->secret.substr(0, 8)) == std::string::npos);
  }
  for (const std::string& wrong :
       {text + "0", text + "\n", " " + text, "K11" + text.substr(3), "K10" + text.substr(4),
        "K10" + std::string(64, 'X') + text.substr(67), text.substr(0, 69) + ":" + token->secret,
        std::string(100000, 'K')})
    CHECK_FALSE(parse_join_token(wrong).ok());
}

TEST_CASE("a token that works once works once, for whoever asked first") {
  const BookFolder folder;
  TokenBook book(folder.path);
  const auto token = book.create(own_hash(), true, 60, 1000);
  REQUIRE(token.ok());
  CHECK(book.redeem(token->name, std::string(32, '0'), "a", 1001).error().code ==
        ErrorCode::kNotFound);
  CHECK(book.redeem(token->name, token->secret, "a", 1001).ok());
  CHECK(book.redeem(token->name, token->secret, "a", 1002).ok());  // its answer was lost
  CHECK(book.redeem(token->name, token->secret, "b", 1002).error().code == ErrorCode::kRefused);
}

TEST_CASE("a token ends when it says, or when it is deleted") {
  const BookFolder folder;
  TokenBook book(folder.path);
  const auto token = book.create(own_hash(), false, 60, 1000);
  const auto lasting = book.create(own_hash(), false, std::nullopt, 1000);
  REQUIRE(token.ok());
  REQUIRE(lasting.ok());
  CHECK(book.redeem(token->name, token->secret, "a", 1059).ok());
  CHECK(book.redeem(token->name, token->secret, "b", 1059).ok());
  CHECK(book.redeem(token->name, token->secret, "c", 1060).error().code == ErrorCode::kRefused);
  CHECK(book.redeem(lasting->name, lasting->secret, "c", 1'000'000'000).ok());
  CHECK(book.remove(lasting->name).ok());
  CHECK(book.redeem(lasting->name, lasting->secret, "c", 1001).error().code ==
        ErrorCode::kNotFound);
  CHECK(book.remove(lasting->name).error().code == ErrorCode::kNotFound);
}

TEST_CASE("the book keeps no secret, is its owner's alone, and has an end") {
  const BookFolder folder;
  TokenBook book(folder.path);
  const auto first = book.create(own_hash(), true, 60, 1000);
  REQUIRE(first.ok());
  CHECK(folder.text().find(first->name) != std::string::npos);
  CHECK(folder.text().find(first->secret) == std::string::npos);
  struct stat info {};
  REQUIRE(::stat((folder.path / "tokens").c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0600);
  for (std::size_t i = 1; i < kTokensKeptMax; ++i)
    REQUIRE(book.create(own_hash(), false, std::nullopt, 1000).ok());
  CHECK(book.create(own_hash(), false, 60, 1000).error().code == ErrorCode::kResourceExhausted);
  CHECK(book.create(own_hash(), false, 60, 1060).ok());  // the first has expired and is forgotten
  const auto kept = book.list();
  REQUIRE(kept.ok());
  CHECK(kept->size() == kTokensKeptMax);
}

TEST_CASE("a book that is damaged is refused, not taken for an empty one") {
  const BookFolder folder;
  TokenBook book(folder.path);
  REQUIRE(book.create(own_hash(), true, 60, 1000).ok());
  const std::string text = folder.text();
  for (const std::string& wrong : {std::string("troupe-tokens 1\ntoken a b once 1 2 3\n"),
                                   text + "toke", std::string("\xff")}) {
    std::ofstream(folder.path / "tokens") << wrong;
    CHECK_FALSE(book.list().ok());
    CHECK_FALSE(book.create(own_hash(), true, 60, 1000).ok());
    CHECK(folder.text() == wrong);
  }
}

TEST_CASE("who says wrong secrets waits, others do not") {
  control::WrongSecrets wrong;
  TimePoint time{};
  for (std::size_t i = 0; i < control::WrongSecrets::kWrongMax; ++i) {
    CHECK(wrong.may_try("10.0.0.1", time));
    wrong.note("10.0.0.1", time);
  }
  CHECK_FALSE(wrong.may_try("10.0.0.1", time));
  CHECK(wrong.may_try("10.0.0.2", time));
  CHECK(wrong.may_try("10.0.0.1", time + control::WrongSecrets::kWindow));
}

TEST_CASE("enrolment: what is written reads the same") {
  const auto request = control::parse_enrolment_request(control::format_enrolment(
      control::EnrolmentRequest{"ab", std::string(32, 'a'),
                                "-----BEGIN CERTIFICATE REQUEST-----\nAA\n"
                                "-----END CERTIFICATE REQUEST-----\n"}));
  REQUIRE(request.ok());
  CHECK(request->token == "ab");
  const std::string& ca = own_credentials().head.ca_certificate;
  const auto reply = control::parse_enrolment_reply(
      control::format_enrolment(control::EnrolmentReply{ca, ca, {}}));
  REQUIRE(reply.ok());
  CHECK(reply->certificate == ca);
  const auto no = control::parse_enrolment_reply(
      control::format_enrolment(control::EnrolmentReply{{}, {}, "No."}));
  REQUIRE(no.ok());
  CHECK(no->refusal == "No.");
}
