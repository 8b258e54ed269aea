"""The rules of the house. A rule takes all sources and yields what breaks it, each with its place."""

import re

from company import actor_folders, machine_fields, one_definition, pure_machines
from sources import code_only, functions, includes, is_cpp, is_test, lines_of

COLUMNS_MAX = 100
PYTHON_COLUMNS_MAX = 110
# A file fits a head, a function a screen (about 70 lines); a switch of one line a message may end
# later.
FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 90
TEST_LINES_MAX = 120  # tables of cases


# --- Who may include whom ---------------------------------------------------------------------

MAY_INCLUDE = {
    "runtime": {"runtime"},
    "kernels": {"kernels", "runtime"},
    "transport": {"transport", "runtime", "schema"},
    "model": {"model", "kernels", "runtime"},
    "actors": {"actors", "model", "kernels", "transport", "runtime"},
    "tools": {"tools", "actors", "model", "kernels", "transport", "runtime"},
}
PROJECT_FOLDERS = {*MAY_INCLUDE, "tests", "schema"}

# Libraries that stay in their corner: they are slow to compile, or only one boundary needs them.
LIBRARY_HOMES = {
    "caf/": ("actors/", "tools/", "tests/"),
    "capnp/": ("transport/", "tests/transport/", "tests/fuzz/"),
    "kj/": ("transport/", "tests/transport/", "tests/fuzz/"),
    "rdma/": ("transport/fabric/",),
    "cuda": ("kernels/cuda/", "tests/bench/", "tests/transport/nccl/"),
    "nccl": ("transport/", "tests/transport/nccl/"),
    "boost/": ("actors/gateway/", "kernels/cuda/twin/", "tools/troupe/http/"),
    "openssl/": ("actors/", "runtime/sha256.cpp", "tools/troupe/pull/", "tests/"),
    "prometheus/": ("actors/metrics/",),
    "spdlog/": ("runtime/",),
    "xxh": ("runtime/",),
    "CLI/": ("tools/troupe/command_line/",),
    "toml++/": ("tools/troupe/command_line/",),
}


def include_rules(sources):
    for name, text in sources.items():
        if not is_cpp(name):
            continue
        folder = name.split("/")[0]
        for header in includes(text):
            target = header.split("/")[0]
            allowed = MAY_INCLUDE.get(folder)
            if allowed and "/" in header and target in PROJECT_FOLDERS and target not in allowed:
                yield f"{name} includes {header}: {folder}/ must not include {target}/"
            if header == "caf/all.hpp":
                yield f"{name} includes caf/all.hpp, which takes seconds to compile"
            for library, homes in LIBRARY_HOMES.items():
                if header.startswith(library) and not name.startswith(homes):
                    yield f"{name} includes {header}, which only {', '.join(homes)} may"


# How many of our translation units may see these headers, through whatever header of ours.
UNITS_MAX = {"boost/beast/": 1, "boost/": 3, "caf/": 8, "rdma/": 7, "toml++/": 1, "CLI/": 1}


def costly_headers(sources):
    """Heavy headers reach few translation units: that keeps the build short."""
    direct = {name: set(includes(text)) for name, text in sources.items() if is_cpp(name)}

    def seen_by(name, visited):
        visited.add(name)
        found = set()
        for header in direct.get(name, ()):
            found.add(header)
            if header in direct and header not in visited:
                found |= seen_by(header, visited)
        return found

    units = [name for name in direct if name.endswith(".cpp") and not is_test(name)]
    seen = {unit: seen_by(unit, set()) for unit in units}
    for library, units_max in UNITS_MAX.items():
        reached = sorted(u for u in units if any(h.startswith(library) for h in seen[u]))
        if len(reached) > units_max:
            yield (f"{len(reached)} translation units see <{library}...>, {units_max} may: "
                   + ", ".join(reached))


# --- Form -------------------------------------------------------------------------------------

def line_form(sources):
    for name, text in sources.items():
        if name.endswith((".md", ".json", ".txt")) and not name.endswith("CMakeLists.txt"):
            continue
        if text and not text.endswith("\n"):
            yield f"{name}: no newline at the end"
        columns_max = PYTHON_COLUMNS_MAX if name.endswith(".py") else COLUMNS_MAX
        for number, line in enumerate(text.split("\n"), 1):
            # A raw string may not be broken.
            if len(line) > columns_max and 'R"' not in line:
                yield f"{name}:{number}: {len(line)} columns, {columns_max} may be"
            if line != line.rstrip():
                yield f"{name}:{number}: white space at the end"
            if "\t" in line:
                yield f"{name}:{number}: a tab"


def file_length(sources):
    for name, text in sources.items():
        lines = text.count("\n")
        if (is_cpp(name) or name.endswith(".py")) and lines > FILE_LINES_MAX:
            yield f"{name}: {lines} lines, {FILE_LINES_MAX} may be"


def function_length(sources):
    for name, text in sources.items():
        if not is_cpp(name):
            continue
        for first, last, head in functions(text):
            if last - first + 1 > (TEST_LINES_MAX if is_test(name) else FUNCTION_LINES_MAX):
                start = " ".join(head.split())[:60]
                yield f"{name}:{first}: a function of {last - first + 1} lines ({start}), about 70 may be"


def header_guards(sources):
    for name, text in sources.items():
        if not name.endswith(".h"):
            continue
        if "#pragma once" not in text:
            yield f"{name}: no #pragma once"
        if lines_of(code_only(text), r"(?m)^\s*using namespace (?!std::\w*literals)"):
            yield f"{name}: `using namespace` in a header"


# --- Banned calls -----------------------------------------------------------------------------

LIBRARIES = ("runtime/", "kernels/", "transport/", "model/", "actors/")
EVERYWHERE = (*LIBRARIES, "tools/", "tests/")
# pattern, where it is banned, why, and the files that may nevertheless
BANNED = [
    (r"(?<![.\w>])(?:_|quick_)?exit\s*\(", LIBRARIES, "a library returns errors", ()),
    (r"(?<![\w.>])s?rand\s*\(", EVERYWHERE, "randomness is seeded and passed in", ()),
    (r"\brandom_device\b", EVERYWHERE, "randomness is passed in",
     ("actors/gateway/exchange.cpp",  # names of requests: they only need to differ
      "tools/")),
    (r"\bsystem_clock::now\b", ("runtime/", "kernels/", "transport/", "model/"),
     "time is passed in", ()),
    (r"\bsteady_clock::now\b|\btroupe::now\(\)", LIBRARIES, "time comes from the host",
     ("runtime/clock.h", "actors/base/caf_host.cpp",
      "kernels/cuda/gpu_accelerator.cpp")),  # how long a GPU may take
    (r"\bsleep_(?:for|until)\s*\(|(?<![\w.>:~])u?sleep\s*\((?!\s*\))", LIBRARIES,
     "wait for what you wait for",
     ("actors/control/file_lock.cpp",)),  # another process lets go of a file, and tells nobody
    (r"\bstd::(?:cout|cerr|clog)\b|(?<![\w.>])(?:std::)?(?:printf|puts|putchar)\s*\(", LIBRARIES,
     "libraries log (runtime/log.h)", ()),
    (r"\bspdlog::(?:trace|debug|info|warn|error|critical)\s*\(", EVERYWHERE,
     "that is the embedding program's log; ours is logger()", ()),
    (r"(?<![\w.>])(?:std::)?ato[ifl]l?\s*\(", (*LIBRARIES, "tools/"), "it hides errors: std::from_chars", ()),
    (r"(?<![\w.>])(?:std::)?(?:strcpy|strcat|sprintf|vsprintf|gets|tmpnam|mktemp)\s*\(", EVERYWHERE,
     "it has no bound", ()),
    (r"\bstd::system\s*\(|(?<![\w.>])popen\s*\(", (*LIBRARIES, "tools/"), "no shells", ()),
    (r"(?<![\w.>])(?:std::)?(?:getenv|setenv|putenv)\s*\(", LIBRARIES,
     "main reads the environment and passes it down", ()),
    (r"\.\s*detach\s*\(\s*\)", EVERYWHERE, "every thread has an owner",
     ("actors/control/dialer.cpp",    # getaddrinfo cannot be stopped; nobody waits for it
      "actors/head/checkpoint_reader.cpp",  # as the next
      "actors/head/journal_writer.cpp",  # a write that hangs
      "actors/head/keeper_thread.cpp",  # the same
      "actors/worker/loader.cpp")),  # neither can a read of storage that hangs
    (r"\bthrow\b(?!\s*\()", LIBRARIES, "Result is the one error idiom",
     ("kernels/accelerator.cpp",  # as runtime/thread_pool.h
      "runtime/buffer.cpp",      # out of memory, as operator new says it
      "runtime/huge_memory.cpp",  # the same
      "runtime/thread_pool.h")),  # unwinds a step out of its kernels when the device goes
    (r"\bstatic\s+(?:thread_local\s+)?\w[\w:<>]*\s+instance\b", EVERYWHERE, "no singletons", ()),
    (r"<cmath>|<math\.h>|<tgmath\.h>", ("kernels/",), "libm differs from processor to processor", ()),
    (r"(?<![\w.>])(?:std::)(?:exp|exp2|log|log2|pow|sin|cos|tanh|erf|sqrt|fma)f?\s*\(", ("kernels/",),
     "libm differs from processor to processor", ()),
]


def banned_calls(sources):
    for name, text in sources.items():
        if not is_cpp(name):
            continue
        code = code_only(text)
        for pattern, places, why, but_not in BANNED:
            if not name.startswith(places) or (but_not and name.startswith(but_not)):
                continue
            for line in lines_of(code, pattern):
                yield f"{name}:{line}: {code.splitlines()[line - 1].strip()[:60]}: {why}"


def compiler_flags(sources):
    for name, text in sources.items():
        if not name.endswith(("CMakeLists.txt", ".cmake", "CMakePresets.json")):
            continue
        for line in lines_of(text, r"-march=native|-ffast-math|-Ofast|-DNDEBUG|-ffp-contract=fast"):
            yield f"{name}:{line}: changes numbers, or turns assertions off"
    root = sources.get("CMakeLists.txt", "")
    for flag in ("-ffp-contract=off", "-Wall", "-Wextra", "-Werror"):
        if flag not in root:
            yield f"CMakeLists.txt: {flag} is missing"


# --- Names, limits, schemas, words --------------------------------------------------------------

def one_version(sources):
    built = re.search(r"project\(Troupe VERSION ([\d.]+)", sources.get("CMakeLists.txt", ""))
    told = re.search(r'kVersion = "([^"]+)"', sources.get("runtime/version.cpp", ""))
    if not built or not told or built[1] != told[1]:
        yield "CMakeLists.txt and runtime/version.cpp name different versions"


METRICS = """num_requests_running num_requests_waiting kv_cache_usage_perc prefix_cache_queries
    prefix_cache_hits prompt_tokens generation_tokens time_to_first_token_seconds
    inter_token_latency_seconds e2e_request_latency_seconds request_queue_time_seconds nodes
    recoveries replayed_requests expert_tokens expert_imbalance expert_moves""".split()


def metric_names(sources):
    text = "".join(text for name, text in sources.items() if name.startswith("actors/metrics/"))
    names = {re.sub("_total$", "", name) for name in re.findall(r'"troupe:(\w+)"', text)}
    for metric in METRICS:
        if metric not in names:
            yield f"actors/metrics: no metric troupe:{metric}"


HTTP_PATHS = """/v1/chat/completions /v1/completions /v1/models /tokenize /detokenize /health /metrics
    /cluster/status /v1/requests/""".split()


def http_paths(sources):
    text = "".join(text for name, text in sources.items() if name.startswith("actors/gateway/"))
    for path in HTTP_PATHS:
        if f'"{path}"' not in text:
            yield f"actors/gateway: nothing answers {path}"


LIMIT = re.compile(r"^inline constexpr [\w:]+(?:<[^>]*>)? (k\w+) = (.*)$")


def limit_reasons(sources):
    """Every limit says why, or stands under one of its family that does; ranges are asserted."""
    name = "runtime/limits.h"
    text = sources.get(name, "")
    above, told_family = "", None
    for number, line in enumerate(text.split("\n"), 1):
        limit = LIMIT.match(line)
        if limit:
            family = re.match(r"k[A-Z][a-z]*", limit[1])[0]
            if "///" in above or "///" in line:
                told_family = family
            elif family != told_family:
                yield f"{name}:{number}: {limit[1]} does not say what for"
            if limit[1].endswith("Min"):
                pair = limit[1], limit[1][:-3] + "Max"
                if not re.search(rf"static_assert\({pair[0]} <=? {pair[1]}\)", text):
                    yield f"{name}:{number}: no static_assert({pair[0]} <= {pair[1]})"
        if not line.strip():
            told_family = None
        above = line


def schemas(sources):
    """Names in kebab-case, one file id each, ordinals from 0 without gaps or doubles."""
    ids = {}
    for name, text in sources.items():
        if not name.endswith(".capnp"):
            continue
        if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*\.capnp", name.split("/")[-1]):
            yield f"{name}: its name is no kebab-case"
        code = re.sub(r"#[^\n]*", "", text)
        file_id = re.search(r"^@(0x[0-9a-f]+);", code, re.MULTILINE)
        if not file_id:
            yield f"{name}: no file id"
        elif ids.setdefault(file_id[1], name) != name:
            yield f"{name}: the file id of {ids[file_id[1]]}"
        for kind, type_name, body in named_blocks(code):
            ordinals = [int(number) for number in re.findall(r"\w\s+@(\d+)", body)]
            if sorted(ordinals) != list(range(len(ordinals))):
                yield f"{name}: {kind} {type_name} has the ordinals {sorted(ordinals)}"


def named_blocks(code):
    """(struct or enum, name, body without the types nested in it) of a schema."""
    open_blocks = []
    for match in re.finditer(r"\b(struct|enum)\s+(\w+)[^{]*\{|[{}]|[^{}]", code):
        if match[1]:
            open_blocks.append([match[1], match[2], ""])
        elif match[0] == "{":
            open_blocks.append([None, None, ""])
        elif match[0] == "}" and open_blocks:
            kind, type_name, body = open_blocks.pop()
            if kind:
                yield kind, type_name, body
            elif open_blocks:
                open_blocks[-1][2] += body  # a union or group counts with its struct
        elif open_blocks:
            open_blocks[-1][2] += match[0]


# Private folders, numbered issues and notes to oneself: the project speaks of itself alone.
# Then turns of phrase that an English reader stumbles over.
WORDS = (r"(?<![\w.])/(?:home|root|work|Users)/\w|\b[Ii]ssue #?\d|\bTODO\b|\bFIXME\b|\bXXX\b|\bHACK\b"
         r"|\b[Aa]new\b|\b(?:is|are|was|were) told of\b|\bin vain\b|\bthought over\b")


def words(sources):
    for name, text in sources.items():
        if name.startswith("tests/house/"):
            continue  # they name what they look for
        for line in lines_of(text, WORDS):
            yield f"{name}:{line}: {text.splitlines()[line - 1].strip()[:80]}"


def readmes(sources):
    folders = {name.split("/")[0] for name in sources if "/" in name} - {"cmake"}
    folders |= {"/".join(name.split("/")[:2]) for name in sources
                if name.startswith("actors/") and name.count("/") > 1}
    for folder in sorted(folders):
        if f"{folder}/README.md" not in sources:
            yield f"{folder}: no README.md"


PARSERS = ["chat_template", "codec", "config", "http_body", "join_file", "safetensors", "tokenizer"]


def fuzz_targets(sources):
    built = sources.get("tests/fuzz/CMakeLists.txt", "")
    there = {name[len("tests/fuzz/"):-len("_fuzz.cpp")] for name in sources
             if name.startswith("tests/fuzz/") and name.endswith("_fuzz.cpp")}
    for parser in sorted({*PARSERS, *there}):
        if parser not in there:
            yield f"tests/fuzz: no fuzz target for {parser}"
        if not re.search(rf"^troupe_fuzz\({parser}\b", built, re.MULTILINE):
            yield f"tests/fuzz/CMakeLists.txt does not build {parser}"


RULES = [include_rules, actor_folders, one_definition, costly_headers, line_form, file_length,
         function_length, header_guards, banned_calls, pure_machines, machine_fields, compiler_flags,
         one_version, metric_names, http_paths, limit_reasons, schemas, words, readmes, fuzz_targets]
