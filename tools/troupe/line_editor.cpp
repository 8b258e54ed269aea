#include "tools/troupe/line_editor.h"

#include <histedit.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cwchar>
#include <string_view>
#include <utility>

namespace troupe::cli {
namespace {

constexpr int kLinesKept = 1000;

sigset_t own_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGWINCH, SIGCONT}) sigaddset(&set, signal);
  return set;
}

/// What is typed is UTF-8, also where nobody has set a locale, as in most containers.
void use_utf8() {
  std::setlocale(LC_CTYPE, "");
  if (MB_CUR_MAX == 1) std::setlocale(LC_CTYPE, "C.UTF-8");
}

}  // namespace

struct LineEditor::Impl {
  ~Impl() {
    if (editor) el_end(editor);
    if (history) ::history_end(history);
    close(terminal_signals);
  }
  static Impl& of(EditLine* editor) {
    void* self = nullptr;
    el_get(editor, EL_CLIENTDATA, &self);
    return *static_cast<Impl*>(self);
  }
  static char* prompt_of(EditLine* editor) { return of(editor).prompt.data(); }
  static int read_key(EditLine* editor, wchar_t* key) { return of(editor).read_key(key); }

  int read_key(wchar_t* key);
  void terminal_changed();

  int signals = -1;
  int terminal_signals = -1;
  EditLine* editor = nullptr;
  History* history = nullptr;
  std::string prompt;
  bool typed_before = false;  // There is input of before the prompt; until the first key is read.
  QuestionReader::News news = QuestionReader::News::kEnd;  // If there is no line, why.
};

void LineEditor::Impl::terminal_changed() {
  if (take_signal(terminal_signals) == SIGWINCH) return el_resize(editor);
  // It takes the terminal for prepared; the shell has made it its own meanwhile.
  el_set(editor, EL_PREP_TERM, 0);
  el_set(editor, EL_PREP_TERM, 1);
  el_set(editor, EL_REFRESH);
}

/// 1 with a character, 0 at the end, -1 if a signal came.
int LineEditor::Impl::read_key(wchar_t* key) {
  std::mbstate_t state{};
  while (true) {
    std::array<pollfd, 3> sources{
        {{STDIN_FILENO, POLLIN, 0}, {signals, POLLIN, 0}, {terminal_signals, POLLIN, 0}}};
    if (poll(sources.data(), sources.size(), -1) < 0) continue;
    if (const int signal = sources[1].revents != 0 ? take_signal(signals) : 0; signal != 0) {
      news = signal == SIGINT ? QuestionReader::News::kInterrupted
                              : QuestionReader::News::kTerminated;
      return -1;
    }
    if (sources[2].revents != 0) terminal_changed();
    if (sources[0].revents == 0) continue;
    char byte = 0;
    const ssize_t count = read(STDIN_FILENO, &byte, 1);
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    // A Ctrl-D that came while there was no prompt: what Linux makes of it for who reads keys.
    const bool before = std::exchange(typed_before, false);
    if (count <= 0 || (byte == 0 && before)) return 0;
    switch (std::mbrtowc(key, &byte, 1, &state)) {
      case static_cast<std::size_t>(-2):  // there is more of it
        break;
      case static_cast<std::size_t>(-1):  // no UTF-8
        state = {};
        break;
      default:
        return 1;
    }
  }
}

LineEditor::LineEditor(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
LineEditor::~LineEditor() = default;

void LineEditor::prepare() {
  use_utf8();
  const sigset_t set = own_signals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

std::unique_ptr<LineEditor> LineEditor::open(int signals) {
  const char* kind = std::getenv("TERM");
  if (!kind || !*kind || std::string_view(kind) == "dumb") return nullptr;
  auto impl = std::make_unique<Impl>();
  impl->signals = signals;
  const sigset_t set = own_signals();
  impl->terminal_signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  impl->editor = el_init("troupe", stdin, stdout, stderr);
  impl->history = ::history_init();
  if (!impl->editor || !impl->history) return nullptr;
  HistEvent event{};
  ::history(impl->history, &event, H_SETSIZE, kLinesKept);
  ::history(impl->history, &event, H_SETUNIQUE, 1);
  EditLine* editor = impl->editor;
  el_set(editor, EL_CLIENTDATA, impl.get());
  el_set(editor, EL_PROMPT, &Impl::prompt_of);
  el_set(editor, EL_HIST, ::history, impl->history);
  el_set(editor, EL_EDITOR, "emacs");
  el_set(editor, EL_SIGNAL, 1);  // a stop or an end finds the terminal as it was
  el_set(editor, EL_BIND, "^R", "em-inc-search-prev", nullptr);
  el_wset(editor, EL_GETCFN, static_cast<int (*)(EditLine*, wchar_t*)>(&Impl::read_key));
  el_source(editor, nullptr);
  return std::unique_ptr<LineEditor>(new LineEditor(std::move(impl)));
}

QuestionReader::News LineEditor::next(const std::string& prompt, std::string& line) {
  impl_->prompt = prompt;
  pollfd input{STDIN_FILENO, POLLIN, 0};
  impl_->typed_before = poll(&input, 1, 0) > 0;
  impl_->news = QuestionReader::News::kEnd;
  int count = 0;
  const char* text = el_gets(impl_->editor, &count);
  if (!text || count <= 0) return impl_->news;
  line.assign(text, static_cast<std::size_t>(count));
  if (line.ends_with('\n')) line.pop_back();
  HistEvent event{};
  if (line.find_first_not_of(" \t") != std::string::npos)
    ::history(impl_->history, &event, H_ENTER, line.c_str());
  return QuestionReader::News::kLine;
}

}  // namespace troupe::cli
