# shellcheck shell=bash
# Sourced by the other scripts of this folder. Works with bash 3.2 (macOS).
#
#   prepare_environment [EXTRA]   makes or reuses .venv/<version> in the checkout,
#                                 with spec_jax[EXTRA] installed in editable form,
#                                 and leaves its interpreter in SPEC_JAX_PYTHON
#   prepare_browser               a browser for the tests that open the report's page,
#                                 from apt where that is possible and none is there
#   stage TITLE COMMAND...        runs a command, saying what and for how long
#
# PYTHON names the interpreter to use; otherwise the newest tested one that runs.

TESTED_PYTHONS="3.12 3.11"
NEWER_PYTHONS="3.13 3.14 3.15"
ROOT="$(cd -- "${BASH_SOURCE[0]%/*}/.." && pwd)"

# Another environment's paths would shadow the one made here.
unset PYTHONHOME PYTHONPATH VIRTUAL_ENV
export PIP_USER=0 PIP_DISABLE_PIP_VERSION_CHECK=1

fail() {
  printf 'error: %s\n' "$*" >&2
  return 1
}

# python_version PROGRAM: its "major.minor", or failure where it does not run. A
# shim of a version manager may be on the path without an interpreter behind it.
python_version() {
  local version
  version="$("$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)" || return 1
  case "$version" in
    [0-9]*.[0-9]*) printf '%s\n' "$version" ;;
    *) return 1 ;;
  esac
}

# python_candidates VERSION: one program a line, to be tried in this order.
python_candidates() {
  local version="$1" program
  type -aP "python$version" 2>/dev/null || true
  for program in "${PYENV_ROOT:-$HOME/.pyenv}/versions/$version".*/bin/python; do
    if [ -x "$program" ]; then printf '%s\n' "$program"; fi
  done
  type -aP python3 python 2>/dev/null || true
}

find_python() {
  local version program
  for version in "$@"; do
    while IFS= read -r program; do
      if [ "$(python_version "$program")" = "$version" ]; then
        printf '%s\n' "$program"
        return 0
      fi
    done <<<"$(python_candidates "$version")"
  done
  return 1
}

# choose_python: prints the interpreter to build the environment with.
choose_python() {
  local version
  if [ -n "${PYTHON:-}" ]; then
    version="$(python_version "$PYTHON")" || {
      fail "PYTHON=$PYTHON does not run; name a Python 3.11 or newer that does"
      return 1
    }
    case "$version" in
      3.[0-9] | 3.10 | [012].*)
        fail "PYTHON=$PYTHON is Python $version; spec_jax needs 3.11 or newer"
        return 1
        ;;
    esac
    type -P "$PYTHON"
    return 0
  fi
  # shellcheck disable=SC2086  # lists of words
  find_python $TESTED_PYTHONS && return 0
  # shellcheck disable=SC2086
  if find_python $NEWER_PYTHONS; then
    printf 'note: spec_jax is tested with Python %s; using a newer one\n' "$TESTED_PYTHONS" >&2
    return 0
  fi
  fail "no Python 3.11 or newer that runs was found; install one, or name it: PYTHON=/path/to/python3.12 bash $0"
}

# digest PYTHON TEXT...: one line that changes with the interpreter, the checkout's
# place and the texts.
digest() {
  "$1" - "$ROOT" "${@:2}" <<'PY'
import hashlib, sys
parts = [sys.version, *sys.argv[1:]]
print(hashlib.sha256("\0".join(parts).encode()).hexdigest())
PY
}

make_venv() {
  local python="$1" folder="$2"
  if "$python" -m venv "$folder" >/dev/null 2>&1; then return 0; fi
  # Debian splits ensurepip off into python3-venv; an outer pip can stand in.
  rm -rf "$folder"
  if "$python" -m venv --without-pip "$folder" 2>/dev/null &&
    "$python" -m pip --python "$folder/bin/python" install --quiet pip; then return 0; fi
  rm -rf "$folder"
  fail "$python can make no virtual environment; on Debian or Ubuntu: sudo apt-get install python$(python_version "$python")-venv"
}

# Nothing is trusted that does not carry a stamp: it is written last, and taken
# away before anything is changed, so an interrupted install is made anew. Its
# lines: whose environment it is, then one for each set of extras installed.
prepare_environment() {
  local extra="${1:-}" python version folder stamp requirements owner key
  python="$(choose_python)" || return 1
  version="$(python_version "$python")"
  folder="$ROOT/.venv/$version"
  stamp="$folder/spec_jax.stamp"
  export SPEC_JAX_PYTHON="$folder/bin/python"
  requirements="$(cat -- "$ROOT/setup.py" "$ROOT/pyproject.toml")" || return 1
  owner="$(digest "$python")" || return 1
  key="$(digest "$python" "$requirements" "$extra")" || return 1
  printf 'Python %s: %s\nenvironment: %s\n' "$version" "$python" "$folder"
  if stamped "$folder" "$key"; then return 0; fi
  stage "installing spec_jax${extra:+[$extra]} (once; a few minutes)" \
    install_package "$python" "$folder" "$owner" "$extra" || return 1
  {
    printf '%s\n' "$owner" "$key"
    # What has an extra has the bare package too.
    digest "$python" "$requirements" ''
  } >"$stamp.new" || return 1
  mv -f "$stamp.new" "$stamp"
}

# stamped FOLDER LINE: whether it is a whole environment that runs and says so.
stamped() {
  python_version "$1/bin/python" >/dev/null && grep -qsxF "$2" "$1/spec_jax.stamp"
}

install_package() {
  local python="$1" folder="$2" owner="$3" extra="$4"
  if stamped "$folder" "$owner"; then
    rm -f "$folder/spec_jax.stamp"
  else
    rm -rf "$folder"
    make_venv "$python" "$folder" || return 1
  fi
  "$folder/bin/python" -m pip install --quiet --editable "$ROOT${extra:+[$extra]}" || return 1
  (cd / && "$folder/bin/python" -c 'import spec_jax')
}

# Never fails: without a browser the tests that need one say that they did not run.
prepare_browser() {
  local program
  for program in chromium chromium-browser google-chrome google-chrome-stable; do
    if type -P "$program" >/dev/null; then return 0; fi
  done
  if [ "${BROWSER:-}" = none ] || [ "$(id -u)" != 0 ] || ! type -P apt-get >/dev/null; then
    return 0
  fi
  stage "installing Chromium for the tests of the report (BROWSER=none leaves it out)" \
    install_browser || printf 'note: without a browser the page is not opened in one\n' >&2
}

# Fonts come with it, or a page would have no letters to measure.
install_browser() {
  export DEBIAN_FRONTEND=noninteractive
  apt_install() {
    apt-get install -y -qq --no-install-recommends -o DPkg::Lock::Timeout=60 \
      chromium fonts-dejavu-core >/dev/null 2>&1
  }
  # Lists of packages may be there already; where not, they are fetched.
  apt_install || { apt-get update -qq >/dev/null 2>&1 && apt_install; }
}

stage() {
  local title="$1" start=$SECONDS status=0
  shift
  printf '\n== %s\n' "$title"
  "$@" || status=$?
  printf '== %s: %d s%s\n' "$title" "$((SECONDS - start))" \
    "$([ "$status" -eq 0 ] || printf ' (failed, status %d)' "$status")"
  return "$status"
}
