#include "tools/troupe/terminal.h"

// Wide characters, and no macros for names that others use.
#define NCURSES_WIDECHAR 1
#define NCURSES_NOMACROS 1
#include <curses.h>
#include <fcntl.h>
#include <langinfo.h>
#include <sys/ioctl.h>
#include <term.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <clocale>
#include <csignal>
#include <cstdlib>
#include <cstring>

namespace troupe::cli {
namespace {

using console::Cell;
using console::Key;
using console::Style;

constexpr std::array kCrashes{SIGABRT, SIGSEGV, SIGBUS, SIGILL, SIGFPE};

/// What a crash must find ready: it may allocate nothing.
struct CrashNotes {
  termios modes;
  std::array<char, 64> leave;  ///< out of the other screen, cursor back, plain letters
  std::size_t leave_size = 0;
};
CrashNotes crash_notes;

/// Gives the terminal back, then lets the signal do what it would have done.
void on_crash(int signal) {
  tcsetattr(STDOUT_FILENO, TCSANOW, &crash_notes.modes);
  // Nothing can be done if it fails.
  [[maybe_unused]] const auto written =
      write(STDOUT_FILENO, crash_notes.leave.data(), crash_notes.leave_size);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void note_for_crash() {
  std::string leave;
  for (const char* name : {"rmcup", "cnorm", "sgr0", "rmkx"}) {
    const char* text = tigetstr(name);
    if (text != nullptr && text != reinterpret_cast<const char*>(-1)) leave += text;
  }
  // A pause in a capability ("$<5>") is for terminals of long ago.
  crash_notes.leave_size = std::min(leave.size(), crash_notes.leave.size());
  std::memcpy(crash_notes.leave.data(), leave.data(), crash_notes.leave_size);
  for (const int signal : kCrashes) std::signal(signal, on_crash);
}

/// Terminals send other arrows where TERM does not quite name them; both kinds are taken.
void learn_arrows() {
  for (const auto& [sequence, key] : {std::pair("\x1b[A", KEY_UP),
                                      {"\x1b[B", KEY_DOWN},
                                      {"\x1bOA", KEY_UP},
                                      {"\x1bOB", KEY_DOWN},
                                      {"\x1b[H", KEY_HOME},
                                      {"\x1b[F", KEY_END},
                                      {"\x1b[5~", KEY_PPAGE},
                                      {"\x1b[6~", KEY_NPAGE},
                                      {"\x1b[Z", KEY_BTAB}})
    define_key(sequence, key);
}

bool colour_is_wanted() {
  const char* no = std::getenv("NO_COLOR");
  return no == nullptr || *no == '\0';
}

/// Letters of the heat levels, coldest first: of the 256 colours that most terminals know, and of
/// eight. Blue up to twice the mean, warm above. The glyphs get denser with it, so that the ground
/// shows through the lesser ones.
constexpr std::array<short, console::kHeatLevels> kHeat256{240, 32, 39, 45, 214, 196};
constexpr std::array<short, console::kHeatLevels> kHeat8{COLOR_WHITE, COLOR_BLUE,   COLOR_CYAN,
                                                         COLOR_CYAN,  COLOR_YELLOW, COLOR_RED};

attr_t attributes_of(Style style, bool colour) {
  switch (style) {
    case Style::kDim:
      // Without colour, dim letters are hard to read on some terminals, and plain ones are fine.
      return colour ? A_DIM : A_NORMAL;
    case Style::kStrong:
    case Style::kGood:
      return style == Style::kStrong ? A_BOLD : A_NORMAL;
    case Style::kWarning:
      return A_BOLD;
    case Style::kBad:
      return colour ? A_BOLD : A_REVERSE;
    case Style::kTitle:
    case Style::kSelected:
    case Style::kMoved:
      return A_REVERSE | (style == Style::kMoved ? A_BOLD : A_NORMAL);
    default:
      return style == Style::kHeat5 ? A_BOLD : A_NORMAL;
  }
}

}  // namespace

struct Terminal::Impl {
  SCREEN* screen = nullptr;
  bool unicode = false;
  bool colour = false;
  int width = 0, height = 0;
  std::array<short, console::kStyles> pairs{};

  void make_pairs() {
    colour = colour_is_wanted() && has_colors() && start_color() == OK;
    if (!colour) return;
    use_default_colors();
    short next = 1;
    const auto pair = [&](Style style, short letters) {
      init_pair(next, letters, -1);
      pairs[static_cast<std::size_t>(style)] = next++;
    };
    pair(Style::kGood, COLOR_GREEN);
    pair(Style::kWarning, COLOR_YELLOW);
    pair(Style::kBad, COLOR_RED);
    pair(Style::kMoved, COLOR_MAGENTA);
    const auto& heats = COLORS >= 256 ? kHeat256 : kHeat8;
    for (int level = 0; level < console::kHeatLevels; ++level)
      pair(console::heat(level), heats[static_cast<std::size_t>(level)]);
  }

  void measure() {
    winsize size{};
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0)
      size = {24, 80, 0, 0};
    // Nobody reads more, and a terminal may say anything.
    width = std::min<int>(size.ws_col, 1000);
    height = std::min<int>(size.ws_row, 500);
  }
};

Terminal::Terminal(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<std::unique_ptr<Terminal>> Terminal::open() {
  if (!isatty(STDOUT_FILENO) || !isatty(STDIN_FILENO))
    return unavailable("The console needs a terminal; `troupe status` prints the same facts once.");
  if (tcgetattr(STDOUT_FILENO, &crash_notes.modes) != 0)
    return unavailable("The terminal's modes cannot be read: " + std::string(strerror(errno)) +
                       ".");
  auto impl = std::make_unique<Impl>();
  impl->unicode =
      std::setlocale(LC_CTYPE, "") != nullptr && std::strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
  set_escdelay(25);  // Esc alone means back: a terminal's own sequences come at once.
  const char* name = std::getenv("TERM");
  impl->screen = newterm(nullptr, stdout, stdin);
  if (impl->screen == nullptr)
    return unavailable("This terminal is not known (TERM=" + std::string(name ? name : "") +
                       "); set TERM to its kind, for example vt100.");
  note_for_crash();
  cbreak();
  noecho();
  nonl();
  keypad(stdscr, TRUE);
  nodelay(stdscr, TRUE);
  learn_arrows();
  curs_set(0);
  impl->make_pairs();
  impl->measure();
  return std::unique_ptr<Terminal>(new Terminal(std::move(impl)));
}

Terminal::~Terminal() {
  endwin();
  for (const int signal : kCrashes) std::signal(signal, SIG_DFL);
  delscreen(impl_->screen);
}

int Terminal::width() const { return impl_->width; }
int Terminal::height() const { return impl_->height; }
bool Terminal::unicode() const { return impl_->unicode; }

void Terminal::resize() {
  impl_->measure();
  resizeterm(impl_->height, impl_->width);
  clearok(stdscr, TRUE);
}

void Terminal::show(const console::Canvas& canvas) {
  const int height = std::min(canvas.height(), impl_->height);
  const int width = std::min(canvas.width(), impl_->width);
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      const Cell& cell = canvas.at(x, y);
      attr_t attributes = attributes_of(cell.style, impl_->colour);
      if (cell.mark) attributes |= A_UNDERLINE;
      // ASCII is all that other character sets share.
      const auto glyph =
          cell.glyph < 0x80 || impl_->unicode ? static_cast<wchar_t>(cell.glyph) : L'?';
      const wchar_t text[2] = {glyph, L'\0'};
      cchar_t out;
      setcchar(&out, text, attributes, impl_->pairs[static_cast<std::size_t>(cell.style)], nullptr);
      mvadd_wch(y, x, &out);
    }
  }
  refresh();
}

std::vector<Key> Terminal::keys(bool& gone) {
  std::vector<Key> keys;
  gone = false;
  // A paste of any length is read in portions: drawing must not starve.
  while (keys.size() < 64) {
    wint_t code = 0;
    const int kind = get_wch(&code);
    if (kind == ERR) break;
    char32_t key = code;
    if (kind == KEY_CODE_YES) {
      switch (code) {
        case KEY_UP:
          key = Key::kUp;
          break;
        case KEY_DOWN:
          key = Key::kDown;
          break;
        case KEY_PPAGE:
          key = Key::kPageUp;
          break;
        case KEY_NPAGE:
          key = Key::kPageDown;
          break;
        case KEY_HOME:
          key = Key::kHome;
          break;
        case KEY_END:
          key = Key::kEnd;
          break;
        case KEY_ENTER:
          key = Key::kEnter;
          break;
        case KEY_BACKSPACE:
          key = Key::kBack;
          break;
        case KEY_BTAB:
          key = Key::kPrevious;
          break;
        default:
          continue;
      }
    } else {
      if (key == U'\r' || key == U'\n') key = Key::kEnter;
      if (key == 0x1B || key == 0x7F || key == 0x08) key = Key::kBack;
      if (key == U'\t') key = Key::kNext;
      if (key == 0x0C) {  // Ctrl-L
        clearok(stdscr, TRUE);
        key = Key::kRedraw;
      }
      if (key == 0x04) gone = true;  // Ctrl-D
    }
    keys.push_back({key});
  }
  return keys;
}

void Terminal::suspend() {
  endwin();
  std::raise(SIGSTOP);
  resize();
}

}  // namespace troupe::cli
