#include <algorithm>
#include <utility>

#include "model/jinja/context.h"
#include "model/jinja/parser.h"

namespace troupe::jinja {

Result<Block> Parser::run() {
  Block all = block({});
  if (status_.ok() && now().kind != Token::Kind::kEnd) fail("unexpected " + shown_token());
  if (!status_.ok()) return status_.error();
  return all;
}

void Parser::fail(const std::string& what) {
  if (status_.ok()) status_ = syntax_error(now().line, what);
}

std::string Parser::shown_token() const {
  switch (now().kind) {
    case Token::Kind::kEnd:
      return "the end of the template";
    case Token::Kind::kBlockEnd:
      return "'%}'";
    case Token::Kind::kOutputEnd:
      return "'}}'";
    default:
      return "'" + now().text.substr(0, 40) + "'";
  }
}

/// False, and the template is refused, if something is nested too deeply.
bool Parser::enter() {
  if (++depth_ > kSyntaxHeightMax) fail("it is nested too deeply");
  if (status_.ok()) return true;
  --depth_;
  return false;
}

Token Parser::take() {
  Token token = now();
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool Parser::take_sign(std::string_view sign) {
  if (!now().is(sign)) return false;
  take();
  return true;
}

bool Parser::take_name(std::string_view name) {
  if (!now().named(name)) return false;
  take();
  return true;
}

void Parser::expect_sign(std::string_view sign) {
  if (!take_sign(sign)) fail("'" + std::string(sign) + "' is missing before " + shown_token());
}

std::string Parser::expect_name() {
  if (now().kind == Token::Kind::kName) return take().text;
  fail("a name is missing before " + shown_token());
  return {};
}

/// Statements up to a block that begins with one of `ends`, whose name is the next token then.
Block Parser::block(std::initializer_list<std::string_view> ends) {
  Block all;
  if (!enter()) return all;
  while (status_.ok() && now().kind != Token::Kind::kEnd) {
    const Token token = take();
    if (token.kind == Token::Kind::kData) {
      all.emplace_back();
      all.back().text = token.text;
    } else if (token.kind == Token::Kind::kOutputBegin) {
      all.emplace_back();
      all.back().kind = Statement::Kind::kOutput;
      all.back().line = token.line;
      all.back().expression = tuple(true, false);
      if (take().kind != Token::Kind::kOutputEnd) fail("'}}' is missing");
    } else if (token.kind == Token::Kind::kBlockBegin) {
      const bool ended = now().kind == Token::Kind::kName &&
                         std::find(ends.begin(), ends.end(), now().text) != ends.end();
      if (ended) {
        leave();
        return all;
      }
      all.push_back(statement());
      all.back().line = token.line;
      if (status_.ok() && take().kind != Token::Kind::kBlockEnd)
        fail("'%}' is missing before " + shown_token());
    }
  }
  if (status_.ok() && ends.size() > 0) {
    fail("a block is not closed: '" + std::string(*(ends.end() - 1)) + "' is missing");
  }
  leave();
  return all;
}

/// The end of the tag that opens a block.
void Parser::block_end(std::string_view what) {
  if (status_.ok() && take().kind != Token::Kind::kBlockEnd)
    fail("'%}' is missing after " + std::string(what));
}

Statement Parser::statement() {
  const std::string name = expect_name();
  if (name == "set") return set();
  if (name == "for") return for_loop();
  if (name == "if") return if_else();
  if (name == "macro") return macro();
  if (name == "call") return call();
  if (name == "filter") return filter_block();
  if (name == "with") return with();
  if (name == "generation") return generation();
  if (name == "break" || name == "continue") {
    --at_;
    return loop_control();
  }
  if (status_.ok()) {
    --at_;
    fail("there is no block '" + name + "'");
  }
  return {};
}

Target Parser::target_part(bool may_be_attribute) {
  Target part;
  if (take_sign("(")) {
    part = target(may_be_attribute);
    expect_sign(")");
    return part;
  }
  part.name = expect_name();
  if (may_be_attribute && take_sign(".")) part.attribute = expect_name();
  for (std::string_view reserved : {"true", "false", "none", "True", "False", "None"})
    if (part.name == reserved) fail("'" + part.name + "' cannot have a value");
  return part;
}

Target Parser::target(bool may_be_attribute) {
  if (!enter()) return {};
  Target first = target_part(may_be_attribute);
  if (now().is(",")) {
    Target all;
    all.targets.push_back(std::move(first));
    while (status_.ok() && take_sign(",")) {
      if (now().kind != Token::Kind::kName && !now().is("(")) break;
      if (now().named("in")) break;
      all.targets.push_back(target_part(may_be_attribute));
    }
    first = std::move(all);
  }
  leave();
  return first;
}

Statement Parser::set() {
  Statement made;
  made.kind = Statement::Kind::kSet;
  made.target = target(true);
  if (take_sign("=")) {
    made.expression = tuple(true, false);
    return made;
  }
  made.kind = Statement::Kind::kSetBlock;
  while (status_.ok() && take_sign("|")) made.expression = filter(std::move(made.expression));
  block_end("set");
  made.body = block({"endset"});
  take();
  return made;
}

Statement Parser::for_loop() {
  Statement made;
  made.kind = Statement::Kind::kFor;
  made.target = target(false);
  if (!take_name("in")) fail("'in' is missing before " + shown_token());
  made.expression = tuple(false, false);
  if (take_name("if")) made.condition = expression();
  if (now().named("recursive")) fail("recursive loops are not supported");
  block_end("for");
  ++loops_;
  made.body = block({"else", "endfor"});
  --loops_;
  if (take_name("else")) {
    block_end("else");
    made.otherwise = block({"endfor"});
  }
  take();
  return made;
}

Statement Parser::if_else() {
  Statement made;
  made.kind = Statement::Kind::kIf;
  made.expression = tuple(false, false);
  block_end("if");
  made.body = block({"elif", "else", "endif"});
  while (status_.ok() && take_name("elif")) {
    Statement& branch = made.elifs.emplace_back();
    branch.expression = tuple(false, false);
    block_end("elif");
    branch.body = block({"elif", "else", "endif"});
  }
  if (take_name("else")) {
    block_end("else");
    made.otherwise = block({"endif"});
  }
  take();
  return made;
}

void Parser::parameters(std::vector<Parameter>& out) {
  expect_sign("(");
  while (status_.ok() && !now().is(")")) {
    Parameter parameter{expect_name(), nullptr};
    if (take_sign("="))
      parameter.fallback = expression();
    else if (!out.empty() && out.back().fallback)
      fail("a parameter without a default comes late");
    out.push_back(std::move(parameter));
    if (!take_sign(",")) break;
  }
  expect_sign(")");
}

Statement Parser::macro() {
  Statement made;
  made.kind = Statement::Kind::kMacro;
  made.text = expect_name();
  parameters(made.parameters);
  block_end("macro");
  const int loops = std::exchange(loops_, 0);
  const std::size_t first = at_;
  made.body = block({"endmacro"});
  for (std::size_t i = first; i < at_; ++i)
    made.uses_extra |= tokens_[i].named("varargs") || tokens_[i].named("kwargs");
  loops_ = loops;
  take();
  return made;
}

Statement Parser::call() {
  Statement made;
  made.kind = Statement::Kind::kCall;
  if (now().is("(")) parameters(made.parameters);
  made.expression = expression();
  if (status_.ok() && made.expression->kind != Expression::Kind::kCall) fail("'call' needs a call");
  block_end("call");
  const int loops = std::exchange(loops_, 0);
  made.body = block({"endcall"});
  loops_ = loops;
  take();
  return made;
}

Statement Parser::filter_block() {
  Statement made;
  made.kind = Statement::Kind::kFilter;
  made.expression = filter(nullptr);
  while (status_.ok() && take_sign("|")) made.expression = filter(std::move(made.expression));
  block_end("filter");
  made.body = block({"endfilter"});
  take();
  return made;
}

Statement Parser::with() {
  Statement made;
  made.kind = Statement::Kind::kWith;
  while (status_.ok() && now().kind != Token::Kind::kBlockEnd) {
    Parameter parameter{expect_name(), nullptr};
    expect_sign("=");
    parameter.fallback = expression();
    made.parameters.push_back(std::move(parameter));
    if (!take_sign(",")) break;
  }
  block_end("with");
  made.body = block({"endwith"});
  take();
  return made;
}

/// Training marks what the assistant says; here the body is all that matters.
Statement Parser::generation() {
  Statement made;
  made.kind = Statement::Kind::kWith;
  block_end("generation");
  made.body = block({"endgeneration"});
  take();
  return made;
}

Statement Parser::loop_control() {
  Statement made;
  made.kind = now().named("break") ? Statement::Kind::kBreak : Statement::Kind::kContinue;
  if (loops_ == 0) fail("'" + now().text + "' is outside a loop");
  take();
  return made;
}

}  // namespace troupe::jinja
