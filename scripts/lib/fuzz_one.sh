#!/usr/bin/env bash
# fuzz_one.sh SECONDS PROGRAM: fuzzes from the seeds in tests/fuzz/NAME; a finding is kept in
# build/ci/fuzz/NAME and its log printed.
set -euo pipefail
seconds=$1 program=$2
name=$(basename "$program")
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work="$root/build/ci/fuzz/$name"
mkdir -p "$work/corpus"
seeds=()
[ ! -d "$root/tests/fuzz/$name" ] || seeds=("$root/tests/fuzz/$name")
if ! "$program" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=3000 -print_final_stats=1 \
  -artifact_prefix="$work/" "$work/corpus" "${seeds[@]}" >"$work/log" 2>&1; then
  tail -n 60 "$work/log"
  echo "error: $name found an input that fails; it is in $work"
  exit 1
fi
runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$work/log")
echo "$name: $runs runs in $seconds s"
[ "${runs:-0}" -gt 0 ]
