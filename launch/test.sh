#!/usr/bin/env bash
# Runs every test: first those of the mathematics, but for slow ones, with annotations
# checked at run time, then all others.
#
#   bash launch/test.sh                     everything
#   bash launch/test.sh tests/core -k law   one pytest run with these arguments
#
# PYTHON names the interpreter, WORKERS the number of parallel processes (2). As root
# on a machine with apt it installs Chromium; BROWSER=none leaves that out.
set -euo pipefail
# shellcheck source=launch/environment.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/environment.sh"

prepare_environment test
cd -- "$ROOT"

run_pytest() {
  "$SPEC_JAX_PYTHON" -m pytest -n "${WORKERS:-2}" --dist worksteal "$@"
}

if [ "$#" -gt 0 ]; then
  run_pytest "$@"
  exit
fi

prepare_browser
status=0
stage "tests of the mathematics, annotations checked at run time" \
  run_pytest --jaxtyping-packages=spec_jax,beartype.beartype -m "not slow" \
  tests/core tests/decoding tests/drafts || status=$?
# Last, so that its counts are the last lines.
run_pytest --durations=15 -m "slow or not mathematics" || status=$?
exit "$status"
