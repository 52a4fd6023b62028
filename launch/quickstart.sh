#!/usr/bin/env bash
# From a fresh clone to translations: makes an environment in .venv/, installs
# the package, shows speculative decoding on the shipped pair, measures it.
#
#   bash launch/quickstart.sh [FLAG...]     flags go to the measurement, such as
#                                           --gin.NUM_EXAMPLES=64
#
# Needs Python 3.11 or newer with pip; PYTHON names one. No root. The only network
# use is pip's, the first time.
set -euo pipefail
# shellcheck source=launch/environment.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/environment.sh"

prepare_environment
cd -- "$ROOT"

spec_jax() { "$SPEC_JAX_PYTHON" -m spec_jax.cli "$@"; }

stage "demo: held-out texts, token by token" \
  spec_jax demo
# One task and one input length: most of a short measurement is compilation. In a
# folder of its own, since a run that is there is not measured again.
stage "evaluate: speculative against plain decoding, 16 translations" \
  spec_jax evaluate --gin_file=runs/evaluate_shipped.gin \
  --gin.MIXTURE_OR_TASK_NAME=ende --gin.INPUT_LENGTHS=64 --gin.NUM_EXAMPLES=16 \
  --gin.EVAL_OUTPUT_DIR="runs_output/quickstart/$(date +%Y%m%d-%H%M%S)" "$@"
printf '\nDone in %d s.\n' "$SECONDS"
