#!/usr/bin/env bash
# A Cloud TPU slice from nothing to results, by plain gcloud. Every command is printed
# before it runs.
#
#   bash launch/tpu_vm.sh create  [OPTION...]
#   bash launch/tpu_vm.sh install [OPTION...]
#   bash launch/tpu_vm.sh run     [OPTION...] COMMAND [FLAG...]   on all workers
#   bash launch/tpu_vm.sh stop    [OPTION...]   ends a run; Ctrl-C only leaves it alone
#   bash launch/tpu_vm.sh fetch   [OPTION...]
#   bash launch/tpu_vm.sh delete  [OPTION...]
#
#   bash launch/tpu_vm.sh run --zone=us-central2-b --bucket=gs://mine/table2 \
#     table2 --gin_file=runs/table2_xxl.gin --gin.EVAL_OUTPUT_DIR="'results'"
#
#   --name=NAME      of the slice, spec-jax
#   --zone=ZONE      or the variable ZONE
#   --project=ID     or PROJECT; by default gcloud's own
#   --type=TYPE      v4-8 (one host, four chips)
#   --version=NAME   of the machine's software, tpu-ubuntu2204-base
#   --spot           create: cheaper, and may be taken away at any time
#   --results=DIR    of the run, in its folder on the machine: 'results'
#   --bucket=URL     run: results are copied there each minute, and from there before
#                    the run begins, so that it survives the machine
#   --to=DIR         fetch: where results go, runs_output/NAME
#   --dry_run        prints the commands and runs none
set -euo pipefail

name=spec-jax zone="${ZONE:-}" project="${PROJECT:-}" type=v4-8
version=tpu-ubuntu2204-base spot=0 results=results bucket="" to="" dry_run=0

usage_error() {
  printf 'error: %s; see the head of %s\n' "$1" "$0" >&2
  exit 2
}

action="${1:-}"
case "$action" in
  create | install | run | stop | fetch | delete) shift ;;
  -h | --help)
    sed -n '2,/^set -/{/^set -/d;s/^# \{0,1\}//;p}' "$0"
    exit 0
    ;;
  *) usage_error "want create, install, run, stop, fetch or delete, got '$action'" ;;
esac
while [ "$#" -gt 0 ]; do
  case "$1" in
    --name=*) name="${1#*=}" ;;
    --zone=*) zone="${1#*=}" ;;
    --project=*) project="${1#*=}" ;;
    --type=*) type="${1#*=}" ;;
    --version=*) version="${1#*=}" ;;
    --spot) spot=1 ;;
    --results=*) results="${1#*=}" ;;
    --bucket=*) bucket="${1#*=}" ;;
    --to=*) to="${1#*=}" ;;
    --dry_run) dry_run=1 ;;
    --*) usage_error "no option $1 before the command" ;;
    *) break ;;
  esac
  shift
done
[ -n "$zone" ] || usage_error "want a zone in --zone or ZONE, got none"
# As Google's names are; so none is taken for an option.
for word in "name=$name" "zone=$zone" "type=$type" "version=$version" \
  ${project:+"project=$project"}; do
  case "${word#*=}" in
    [a-z0-9]*) ;;
    *) usage_error "want --${word%%=*} to begin with a-z or 0-9, got '${word#*=}'" ;;
  esac
  case "${word#*=}" in
    *[!a-z0-9.:-]*)
      usage_error "want --${word%%=*} of a-z, 0-9 and -, got '${word#*=}'"
      ;;
  esac
done
case "$bucket" in
  '' | gs://?*) ;;
  *) usage_error "want --bucket=gs://..., got '$bucket'" ;;
esac
case "$results" in
  '' | -* | /* | *..*) usage_error "want --results inside the run's folder, got '$results'" ;;
esac
if [ "$action" = run ]; then
  [ "$#" -gt 0 ] || usage_error "want a command of spec-jax, got none"
elif [ "$#" -gt 0 ]; then
  usage_error "want no more words after $action, got '$1'"
fi
if [ "$dry_run" = 0 ] && ! type -P gcloud >/dev/null; then
  usage_error "gcloud is not on the path: install the Google Cloud CLI"
fi

where=("--zone=$zone")
if [ -n "$project" ]; then where+=("--project=$project"); fi
root="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)"

# Prints a command, and runs it if this is no dry run.
say_and_run() {
  printf '+ '
  printf '%q ' "$@"
  printf '\n'
  if [ "$dry_run" = 0 ]; then "$@"; fi
}

tpu_vm() { say_and_run gcloud compute tpus tpu-vm "$@" "${where[@]}"; }

# on WORKERS SHELL_LINE: on 'all' workers, or on one by its number.
on() { tpu_vm ssh "$name" "--worker=$1" "--command=$2"; }

create() {
  local more=()
  if [ "$spot" = 1 ]; then more=(--spot); fi
  tpu_vm create "$name" "--accelerator-type=$type" "--version=$version" \
    ${more[@]+"${more[@]}"}
}

# What is committed, and no more; uv brings a Python that is new enough.
install() {
  local folder
  folder="$(mktemp -d "${TMPDIR:-/tmp}/spec_jax.XXXXXX")"
  # shellcheck disable=SC2064  # the folder of now
  trap "rm -rf -- '$folder'" EXIT
  say_and_run git -C "$root" archive --format=tar.gz "--output=$folder/spec_jax.tar.gz" HEAD
  tpu_vm scp "$folder/spec_jax.tar.gz" "$name:" --worker=all
  on all "set -e; mkdir -p spec_jax; tar -xzf spec_jax.tar.gz -C spec_jax
python3 -m pip install --quiet --user uv
python3 -m uv venv --quiet --allow-existing --python 3.12 spec_jax_env
python3 -m uv pip install --quiet --python spec_jax_env/bin/python -e './spec_jax[eval,report,tpu]'
spec_jax_env/bin/python -c 'import jax; print(jax.local_devices())'"
}

# run_line WORDS...: the same line on every worker. What the results' folder holds
# goes to the bucket from the first worker, the only one that writes results.
run_line() {
  local words
  words="$(printf '%q ' ../spec_jax_env/bin/python -m spec_jax.cli "$@")"
  printf 'mkdir -p spec_jax_run && cd spec_jax_run || exit 1\n'
  if [ -z "$bucket" ]; then
    printf '%s\n' "$words"
    return
  fi
  local copy
  copy="gcloud storage rsync --recursive --quiet"
  printf 'mkdir -p %q\n' "$results"
  # An empty bucket is no error: then this is the first run.
  printf '%s %q %q || true\n' "$copy" "$bucket" "$results"
  # shellcheck disable=SC2016  # these are the worker's variables
  printf 'copying=\ncase "$(hostname)" in *-w-0)\n'
  printf '  while sleep 60; do %s %q %q; done </dev/null >/dev/null 2>&1 & copying=$! ;;\nesac\n' \
    "$copy" "$results" "$bucket"
  printf 'status=0\n%s|| status=$?\n' "$words"
  # shellcheck disable=SC2016
  printf 'if [ -n "$copying" ]; then kill "$copying"; %s %q %q || status=1; fi\n' \
    "$copy" "$results" "$bucket"
  # shellcheck disable=SC2016
  printf 'exit "$status"\n'
}

case "$action" in
  create) create ;;
  install) install ;;
  run) on all "$(run_line "$@")" ;;
  fetch)
    to="${to:-$root/runs_output/$name}"
    say_and_run mkdir -p -- "$to"
    tpu_vm scp --recurse "$name:spec_jax_run/$results" "$to" --worker=0
    ;;
  stop)
    # The copy to the bucket follows, as after any run. No shell begins like this.
    on all "pkill -INT -f '^[^ ]*python -m spec_jax.cli' || echo 'nothing runs here'"
    ;;
  delete) tpu_vm delete "$name" --quiet ;;
esac
