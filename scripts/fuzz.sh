#!/usr/bin/env bash
# Builds every fuzz target with clang and runs each for a while, starting from the cases in tests/fuzz/corpus/<name>.
#
#   scripts/fuzz.sh [seconds] [name...]     default: 60 seconds, every target
#
# What a run finds on its way stays in build/fuzz/corpus/<name>, so later runs go on from there; the source tree is not
# written to. A crash, hang, leak or excessive use of memory fails the script and leaves its input in
# build/fuzz/findings/. Once fixed, copy that input to tests/fuzz/corpus/<name>: every build's tests replay it.
set -euo pipefail

readonly max_len=16384 rss_limit_mb=2048 case_timeout=10
seconds=60
if [[ ${1:-} =~ ^[0-9]+$ ]]; then
  seconds=$1
  shift
elif [[ ${1:-} == -* ]]; then
  sed -n '2,8s/^# \{0,1\}//p' "$0"
  exit 2
fi

cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly build=build/fuzz findings=build/fuzz/findings logs=build/fuzz/logs
mkdir -p "$findings" "$logs"
if ! cmake --preset fuzz > "$logs/configure.log" 2>&1; then
  tail -n 20 "$logs/configure.log" >&2
  exit 1
fi

# Ninja lists a target both by its file and by its name; the name has no folder.
mapfile -t targets < <(cmake --build "$build" --target help | sed -n 's/^\(fuzz_[A-Za-z0-9_]*\):.*/\1/p' | sort -u)
if (($# > 0)); then targets=("${@/#/fuzz_}"); fi
if ((${#targets[@]} == 0)); then
  echo "no fuzz targets in $build" >&2
  exit 1
fi
if ! cmake --build "$build" --target "${targets[@]}" > "$logs/build.log" 2>&1; then
  tail -n 40 "$logs/build.log" >&2
  exit 1
fi

failed=0
for target in "${targets[@]}"; do
  name=${target#fuzz_}
  corpus=$build/corpus/$name
  seeds=tests/fuzz/corpus/$name
  log=$logs/$name.log
  binary=$(find "$build/tests" -type f -name "$target" -perm -u+x | head -n 1)
  mkdir -p "$corpus"
  if [[ -d $seeds ]]; then cp -n "$seeds"/* "$corpus/" 2> /dev/null || true; fi
  options=(-max_total_time="$seconds" -max_len="$max_len" -rss_limit_mb="$rss_limit_mb" -timeout="$case_timeout"
    -print_final_stats=1 -artifact_prefix="$findings/$name-")
  if [[ -f tests/fuzz/$name.dict ]]; then options+=(-dict="tests/fuzz/$name.dict"); fi
  if "$binary" "${options[@]}" "$corpus" > "$log" 2>&1; then
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    echo "$name: ok, $runs runs in $seconds s, $(find "$corpus" -type f | wc -l) inputs kept"
  else
    failed=1
    input=$(sed -n 's/.*Test unit written to //p' "$log" | tail -n 1)
    echo "$name: FAILED, input ${input:-not written}, log $log"
    grep -m 3 -E 'ERROR:|SUMMARY:|runtime error:' "$log" || true
  fi
done
exit "$failed"
