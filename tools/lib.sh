# What the scripts of this folder share; sourced, never run. Works from any folder.

ROOT=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd)
VENV=$ROOT/build/venv

# The memory that is left for us, in gigabytes, 1 at least: that of the machine, or of the container.
gigabytes_here() {
  local left bound
  left=$(awk '/^MemAvailable:/ {print int($2 / 1048576)}' /proc/meminfo)
  bound=$(cat /sys/fs/cgroup/memory.max 2>/dev/null || true)
  if [[ $bound =~ ^[0-9]+$ ]] && ((bound >> 30 < left)); then left=$((bound >> 30)); fi
  echo $((left > 1 ? left : 1))
}

# As many compilers as there are processors, and as there is memory for: a gigabyte each.
jobs_here() {
  local processors gigabytes
  processors=$(nproc)
  gigabytes=$(gigabytes_here)
  echo $((processors < gigabytes ? processors : gigabytes))
}
JOBS=${TROUPE_JOBS:-$(jobs_here)}
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
  "${as_root[@]}" apt-get -q update >&2 ||
    say "apt-get update failed; trying with the lists at hand"
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
  mkdir -p "$ROOT/build" || die "cannot write to $ROOT: see above"
  python3 -m venv "$VENV" ||
    die "python3 -m venv failed: see above; is python3-venv installed, and is the disk full?"
  local pip=("$VENV/bin/python" -m pip install --quiet --disable-pip-version-check)
  if ! "${pip[@]}" --requirement "$ROOT/tests/requirements.txt" >&2; then
    local package lacking=()
    for package in $wanted; do
      "${pip[@]}" --retries 0 --timeout 5 "$package" 2>/dev/null || lacking+=("$package")
    done
    die "pip could not install ${lacking[*]:-all of tests/requirements.txt together}:" \
      "the tests need PyPI or a mirror of it. tools/up and tools/build need no Python packages."
  fi
  printf '%s\n' "$wanted" >"$VENV/installed.txt"
}

# build_folder PRESET: where a preset of CMakePresets.json builds.
build_folder() {
  if [[ $1 == release ]]; then echo "$ROOT/build"; else echo "$ROOT/build-$1"; fi
}

# Whether ccache, where there is one, can compile: its folder may be full, or not ours.
ccache_works() {
  command -v ccache >/dev/null && echo 'int main() {}' >"$1/empty.cpp" &&
    ccache g++ -c "$1/empty.cpp" -o "$1/empty.o" >"$1/ccache.log" 2>&1
}

# configure PRESET FOLDER: unless the folder was configured like this: by these flags, this
# compiler, and for this place. What others left there would be used without a word.
configure() {
  local preset=$1 folder=$2 how flags compiler
  flags=("-DTROUPE_CUDA=${TROUPE_CUDA:-AUTO}"
    "-DTROUPE_CUDA_ARCHITECTURES=${TROUPE_CUDA_ARCHITECTURES-}")
  compiler=$("${CXX:-c++}" --version 2>/dev/null) ||
    die "the compiler ${CXX:-c++} cannot be run; CXX of the environment names it"
  if command -v ccache >/dev/null && ! ccache_works "$folder"; then
    say "compiling without ccache, which does not work here: $(tail -n 1 "$folder/ccache.log")"
    flags+=("-DTROUPE_CCACHE=")
  fi
  how="$ROOT ${flags[*]} ${compiler%%$'\n'*} ${CXXFLAGS-} ${CUDA_HOME-}"
  how+=" $(command -v nvcc nvidia-smi | tr '\n' ' ' || true) $(cksum <"$ROOT/CMakePresets.json")"
  if [[ -f $folder/build.ninja && $(cat "$folder/configured.txt" 2>/dev/null) == "$how" ]]; then
    return
  fi
  say "configuring ${folder#"$ROOT"/}"
  rm -rf "$folder/CMakeCache.txt" "$folder/CMakeFiles" "$folder/configured.txt"
  (cd "$ROOT" && cmake --preset "$preset" --log-level=WARNING "${flags[@]}" >&2) ||
    failed "configuring" "$folder"
  printf '%s\n' "$how" >"$folder/configured.txt"
}

# failed WHAT FOLDER [HINT]: ends with what can be said of why.
failed() {
  local free
  free=$(df --output=avail -BM "$2" | tail -n 1 | tr -dc 0-9)
  ((free >= 500)) || die "$1 failed, and the disk is full: $free MB are left in $2"
  die "$1 failed: see above${3-}"
}

# build PRESET [TARGET...]: configures when needed and builds. TROUPE_CUDA of the environment says
# whether GPUs are built for, TROUPE_CUDA_ARCHITECTURES for which: cmake/Cuda.cmake. Several files
# of a library are compiled at once, which is half the work; the preset `files` compiles each alone,
# so that a missing include shows. Two at once would break each other: the second one waits.
build() {
  local preset=$1 folder
  shift
  [[ $JOBS =~ ^[1-9][0-9]{0,3}$ ]] ||
    die "TROUPE_JOBS is '$JOBS'; it says how many compilers run at a time, 1 or more"
  folder=$(build_folder "$preset")
  mkdir -p "$folder" && [[ -w $folder ]] || die "cannot write to $folder"
  {
    flock --nonblock 9 || {
      say "waiting for another build in ${folder#"$ROOT"/}"
      flock 9 || say "this folder cannot be locked: nobody else may build in it now"
    }
    configure "$preset" "$folder"
    say "building ${folder#"$ROOT"/}: ${*:-everything}"
    cmake --build "$folder" --parallel "$JOBS" ${1+--target "$@"} >&2 9>&- ||
      failed "the build" "$folder" " (a compiler that was killed had no memory: TROUPE_JOBS=1)"
  } 9>"$folder/building.lock"
}
