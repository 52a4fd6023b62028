#!/usr/bin/env bash
# Runs one command as N processes of one machine, as N hosts of a slice would: the
# same flags, the same collectives, on virtual CPU devices.
#
#   bash launch/multihost_local.sh [OPTION...] COMMAND [FLAG...]
#
#   bash launch/multihost_local.sh --processes=2 --devices=4 \
#     evaluate --gin_file=runs/evaluate_shipped.gin --gin.NUM_EXAMPLES=16
#
#   --processes=N   2
#   --devices=N     virtual CPU devices of each process, 4
#   --log_dir=DIR   output of processes 1, 2, ... (process 0 prints here); by default
#                   a new folder under ${TMPDIR:-/tmp}
#   --grace=SECONDS that the others have to end by themselves after one failed, 120
#   --dry_run       prints the commands and runs none
#
# Ends with the first status that is not 0. PYTHON names the interpreter to make the
# environment with; SPEC_JAX_PYTHON one that has spec_jax already.
set -euo pipefail

processes=2 devices=4 log_dir="" grace=120 dry_run=0

usage_error() {
  printf 'error: %s; see the head of %s\n' "$1" "$0" >&2
  exit 2
}

# number NAME VALUE LEAST
number() {
  case "$2" in
    '' | *[!0-9]* | ???????*)
      usage_error "want a number of up to six digits in --$1, got '$2'"
      ;;
  esac
  if [ "$2" -lt "$3" ]; then usage_error "want --$1 >= $3, got $2"; fi
}

while [ "$#" -gt 0 ]; do
  case "$1" in
    --processes=*) processes="${1#*=}" ;;
    --devices=*) devices="${1#*=}" ;;
    --log_dir=*) log_dir="${1#*=}" ;;
    --grace=*) grace="${1#*=}" ;;
    --dry_run) dry_run=1 ;;
    -h | --help)
      sed -n '2,/^set -/{/^set -/d;s/^# \{0,1\}//;p}' "$0"
      exit 0
      ;;
    --*) usage_error "no option $1 before the command" ;;
    *) break ;;
  esac
  shift
done
number processes "$processes" 1
number devices "$devices" 1
number grace "$grace" 0
processes=$((10#$processes)) devices=$((10#$devices)) grace=$((10#$grace)) # 08 is 8
[ "$#" -gt 0 ] || usage_error "want a command of spec-jax, got none"

if [ -z "${SPEC_JAX_PYTHON:-}" ]; then
  if [ "$dry_run" = 1 ]; then
    SPEC_JAX_PYTHON=python
  else
    # shellcheck source=launch/environment.sh
    . "$(dirname -- "${BASH_SOURCE[0]}")/environment.sh"
    prepare_environment
  fi
fi

type -P "$SPEC_JAX_PYTHON" >/dev/null || [ "$dry_run" = 1 ] ||
  usage_error "SPEC_JAX_PYTHON is no program: '$SPEC_JAX_PYTHON'"

# Nobody listens there a moment later either, most likely.
free_port() {
  "$SPEC_JAX_PYTHON" -c '
import socket
with socket.socket() as s:
    s.bind(("127.0.0.1", 0))
    print(s.getsockname()[1])'
}

export JAX_PLATFORMS="${JAX_PLATFORMS:-cpu}"
export XLA_FLAGS="${XLA_FLAGS:-} --xla_force_host_platform_device_count=$devices"
port=PORT
if [ "$dry_run" = 0 ]; then
  port="$(free_port)"
  log_dir="${log_dir:-$(mktemp -d "${TMPDIR:-/tmp}/spec_jax_hosts.XXXXXX")}"
  mkdir -p -- "$log_dir" 2>/dev/null || usage_error "cannot write --log_dir=$log_dir"
fi

pids=()
# running: how many are.
running() {
  local pid count=0
  for pid in ${pids[@]+"${pids[@]}"}; do
    if kill -0 "$pid" 2>/dev/null; then count=$((count + 1)); fi
  done
  printf '%d\n' "$count"
}

# A process that goes on after TERM, as one does in a long compilation, gets KILL.
stop_all() {
  local pid signal
  for signal in TERM KILL; do
    for pid in ${pids[@]+"${pids[@]}"}; do kill "-$signal" "$pid" 2>/dev/null || true; done
    for _ in 1 2 3 4 5 6; do
      if [ "$(running)" = 0 ]; then return; fi
      sleep 0.5
    done
  done
}
trap 'stop_all; wait; exit 130' INT
trap 'stop_all; wait; exit 143' TERM

for ((i = 0; i < processes; i++)); do
  words=("$SPEC_JAX_PYTHON" -m spec_jax.cli "$@" "--coordinator_address=localhost:$port"
    "--process_count=$processes" "--process_index=$i")
  printf '+ ' && printf '%q ' "${words[@]}" && printf '\n'
  if [ "$dry_run" = 1 ]; then continue; fi
  if [ "$i" = 0 ]; then
    "${words[@]}" &
  else
    "${words[@]}" >"$log_dir/process$i.log" 2>&1 &
  fi
  pids+=("$!")
done
if [ "$dry_run" = 1 ]; then exit 0; fi

status=0 asked=() left="$grace"
for ((i = 0; i < processes; i++)); do asked+=(0); done
while :; do
  for ((i = 0; i < processes; i++)); do
    if [ "${asked[$i]}" = 1 ] || kill -0 "${pids[$i]}" 2>/dev/null; then continue; fi
    asked[i]=1
    one=0
    wait "${pids[$i]}" || one=$?
    if [ "$one" != 0 ]; then
      printf 'process %d ended with status %d\n' "$i" "$one" >&2
      if [ "$i" != 0 ]; then tail -n 3 "$log_dir/process$i.log" >&2 || true; fi
      if [ "$status" = 0 ]; then status="$one"; fi
    fi
  done
  if [ "$(running)" = 0 ]; then
    # One may have ended between the two looks.
    for ((i = 0; i < processes; i++)); do
      if [ "${asked[$i]}" = 0 ]; then continue 2; fi
    done
    break
  fi
  if [ "$status" != 0 ]; then
    if [ "$left" -le 0 ]; then
      printf 'the others did not end within %d s and are stopped\n' "$grace" >&2
      stop_all
      left="$grace"
    fi
    left=$((left - 1))
  fi
  sleep 1
done
printf 'logs of the other processes: %s\n' "$log_dir"
exit "$status"
