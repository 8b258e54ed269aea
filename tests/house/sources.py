"""The project's sources, and the little of C++ that the rules of the house need to see."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ["runtime", "kernels", "transport", "model", "actors", "configs", "tools", "tests", "cmake"]
CPP = {".cpp", ".cu", ".h"}
TEXT = CPP | {".py", ".capnp", ".cmake", ".txt", ".toml", ".md", ".json", ""}
# What is not ours to rule: data, published formats, other people's licences.
NOT_OURS = ("tools/demo/", "tests/golden/", "tests/fuzz/corpus/")


def read_sources():
    """{path from the root: text} of every text file of the project."""
    paths = [path for path in ROOT.glob("*") if path.is_file() and path.name != ".git"]
    for folder in FOLDERS:
        paths += (ROOT / folder).rglob("*")
    sources = {}
    for path in paths:
        name = path.relative_to(ROOT).as_posix()
        skipped = name.startswith(NOT_OURS) or "__pycache__" in name or ".pytest_cache" in name
        if path.is_file() and path.suffix in TEXT and not skipped:
            sources[name] = path.read_text(encoding="utf-8")
    return sources


def is_cpp(name):
    return Path(name).suffix in CPP


def is_test(name):
    return name.startswith("tests/")


LITERALS = re.compile(
    r"""(?P<raw>R"(?P<mark>[^\s()\\]{0,16})\(.*?\)(?P=mark)")|(?P<comment>//[^\n]*|/\*.*?\*/)"""
    r"""|(?P<text>"(?:\\.|[^"\\\n])*")|(?<![0-9a-fA-F])(?P<char>'(?:\\.|[^'\\\n])+')""",
    re.DOTALL)


def code_only(text):
    """The text with comments and literals blanked out; lines stay where they are."""
    def blank(match):
        kept = '""' if match["raw"] or match["text"] else ""
        return kept + "\n" * match[0].count("\n")
    # An #include keeps its name.
    parts = re.split(r"(^\s*#\s*include[^\n]*$)", text, flags=re.MULTILINE)
    return "".join(part if i % 2 else LITERALS.sub(blank, part) for i, part in enumerate(parts))


def lines_of(text, pattern):
    return [text.count("\n", 0, match.start()) + 1 for match in re.finditer(pattern, text)]


INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)


def includes(text):
    return INCLUDE.findall(text)


SCOPE = re.compile(r"\b(namespace|class|struct|union|enum|extern)\b")


def functions(text):
    """(first line, last line, what stands before the brace) of every function with a body."""
    found, open_braces, head, line, head_line = [], [], "", 1, 1
    for char in re.sub(r"^\s*#.*(?:\\\n.*)*$", "", code_only(text), flags=re.MULTILINE):
        if char == "\n":
            line += 1
        if char == "{":
            in_scope = all(kind == "scope" for kind, *_ in open_braces)
            if not in_scope:
                kind = "inside"
            elif re.search(r"\)[^)]*:.*\w$", head, re.DOTALL):
                kind = "initializer"  # of a member, before the constructor's body
            elif SCOPE.search(re.sub(r"<[^<>]*>|\([^()]*\)", "", head)) and not head.endswith("="):
                kind = "scope"
            elif "(" in head and not re.search(r"[=,(]\s*$", head):
                kind = "function"
            else:
                kind = "value"
            open_braces.append((kind, head_line, head))
            head = ""
        elif char == "}":
            if open_braces:
                kind, first, before = open_braces.pop()
                if kind == "function":
                    found.append((first, line, before.strip()))
                head, head_line = (before + "()", first) if kind == "initializer" else ("", line)
        elif char == ";":
            head = ""
        else:
            if not head.strip():
                head_line = line
            head += char
    return found


TYPE = re.compile(
    r"\bnamespace\s+(?P<space>[\w:]*)\s*\{"
    r"|\b(?:struct|class|union|enum(?:\s+class)?)\s+(?P<type>[\w:]+)\s*(?:final\s*)?(?::[^;{}()]*)?\{"
    r"|[{}]")


def types(text):
    """(full name, body) of every type that stands in a named namespace, not in another type."""
    code = code_only(text)
    open_braces = []
    for match in TYPE.finditer(code):
        if match[0] == "}":
            if open_braces:
                kind, name, start = open_braces.pop()
                named = all(k == "space" and n for k, n, _ in open_braces)
                if kind == "type" and named and "::" not in name:
                    yield "::".join([*(n for _, n, _ in open_braces), name]), code[start:match.start()]
        elif match["space"] is not None:
            open_braces.append(("space", match["space"], match.end()))
        elif match["type"]:
            open_braces.append(("type", match["type"], match.end()))
        else:
            open_braces.append(("block", "", match.end()))
