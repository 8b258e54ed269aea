# What the scripts of this folder share; sourced, never run. Works from any folder.

ROOT=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd)
VENV=$ROOT/build/venv
# A compiler of this code base may take half a gigabyte.
JOBS=${TROUPE_JOBS:-$(nproc)}
# What another clone or worktree has compiled is found, wherever either lies.
export CCACHE_BASEDIR=$ROOT CCACHE_NOHASHDIR=1

say() { printf '%s\n' "-- $*" >&2; }
die() { printf '%s\n' "$(basename "$0"): $*" >&2; exit 1; }

# wants_help "$@": whether help is all that is asked for.
wants_help() {
  local word
  for word; do
    [[ $word == -h || $word == --help ]] && return 0
  done
  return 1
}

# The packages of packages.txt that this machine lacks, one a line.
missing_packages() {
  local wanted
  wanted=$(sed 's/#.*//' "$ROOT/tools/packages.txt" | awk 'NF {print $1}' | sort)
  # The second letter says what is there, the first what is wanted: "ii", on hold "hi".
  # dpkg-query complains about packages it has never heard of: they are the missing ones.
  { dpkg-query --show --showformat '${db:Status-Abbrev} ${Package}\n' $wanted 2>/dev/null || true; } |
    awk '$1 ~ /^.i$/ {print $2}' | sort | comm -23 <(echo "$wanted") -
}

# Installs what is missing; takes no time and no rights when nothing is.
install_packages() {
  if ! command -v dpkg-query >/dev/null; then
    say "this is no Debian; install what tools/packages.txt lists if the build asks for it"
    return
  fi
  local missing as_root=()
  missing=$(missing_packages)
  [[ -n $missing ]] || return 0
  missing=$(tr '\n' ' ' <<<"$missing")
  if [[ $(id -u) != 0 ]]; then
    command -v sudo >/dev/null || die "not root and no sudo; as root run: apt-get install $missing"
    as_root=(sudo)
  fi
  say "installing with apt-get: $missing"
  # A mirror that cannot be reached matters only if the install then fails.
  "${as_root[@]}" apt-get -q update >&2 || say "apt-get update failed; trying with the lists at hand"
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get -q -y --no-install-recommends install $missing >&2 ||
    die "apt-get could not install: $missing"
}

# The Python packages that tests use, in a virtual environment of their own.
make_venv() {
  local wanted
  wanted=$(cat "$ROOT/tests/requirements.txt")
  if [[ -x $VENV/bin/python && $(cat "$VENV/installed.txt" 2>/dev/null) == "$wanted" ]] &&
    "$VENV/bin/python" -c 'import pytest' 2>/dev/null; then
    return
  fi
  say "making build/venv with the Python packages of tests/requirements.txt"
  rm -rf "$VENV"
  mkdir -p "$ROOT/build"
  python3 -m venv "$VENV" || die "python3 -m venv failed; is python3-venv installed?"
  "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check \
    --requirement "$ROOT/tests/requirements.txt" >&2 ||
    die "pip could not install tests/requirements.txt; the tests need PyPI or a mirror of it"
  printf '%s\n' "$wanted" >"$VENV/installed.txt"
}

# build_folder PRESET: where a preset of CMakePresets.json builds.
build_folder() {
  if [[ $1 == release ]]; then echo "$ROOT/build"; else echo "$ROOT/build-$1"; fi
}

# build PRESET [TARGET...]: configures when needed and builds. TROUPE_CUDA of the environment says
# whether GPUs are built for, TROUPE_CUDA_ARCHITECTURES for which: cmake/Cuda.cmake. Several files of
# a library are compiled at once, which is half the work; with TROUPE_UNITY=OFF each alone, so that a
# missing include shows.
build() {
  local preset=$1 folder
  shift
  folder=$(build_folder "$preset")
  if [[ ! -f $folder/build.ninja || $ROOT/CMakePresets.json -nt $folder/build.ninja ||
    -n ${TROUPE_CUDA-} ]]; then
    say "configuring ${folder#"$ROOT"/}"
    (cd "$ROOT" && cmake --preset "$preset" --log-level=WARNING \
      ${TROUPE_CUDA:+"-DTROUPE_CUDA=$TROUPE_CUDA"} \
      ${TROUPE_CUDA_ARCHITECTURES:+"-DTROUPE_CUDA_ARCHITECTURES=$TROUPE_CUDA_ARCHITECTURES"} \
      "-DCMAKE_UNITY_BUILD=${TROUPE_UNITY:-ON}" >&2) ||
      die "configuring failed: see above"
  fi
  say "building ${folder#"$ROOT"/}: ${*:-everything}"
  cmake --build "$folder" --parallel "$JOBS" ${1+--target "$@"} >&2 ||
    die "the build failed: see above"
}
