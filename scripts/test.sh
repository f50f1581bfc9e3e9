#!/usr/bin/env bash
# Builds cadre and runs its tests: all of them in the release build (g++), then those that read outside input in a
# build with address and undefined-behaviour sanitizers (clang), then the check of the source layout.
#
# usage: scripts/test.sh [--fast] [--filter REGEX] [--build-dir DIR] [--no-setup]
#
#   --fast           the release build and its tests only
#   --filter REGEX   only tests whose name matches (as ctest -R)
#   --build-dir DIR  where to build: DIR/release and DIR/asan (default: build)
#   --no-setup       do not look for missing packages, and install none
#   --help           this text
#
# What needs a tool that is missing is skipped. The last lines name every failed and every skipped test with its
# reason and end with "N passed, N failed, N skipped". Exit status: 0 when nothing failed.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source=scripts/lib/common.sh
source "$here/lib/common.sh"

fast=0 filter='' setup=1 build_root=$cadre_root/build
while (($#)); do
  case $1 in
    --fast) fast=1 ;;
    --filter)
      filter=$(option_value "$@") || exit 2
      shift
      ;;
    --filter=*) filter=${1#*=} ;;
    --build-dir)
      build_root=$(option_value "$@") || exit 2
      shift
      ;;
    --build-dir=*) build_root=${1#*=} ;;
    --no-setup) setup=0 ;;
    -h | --help)
      usage_of "${BASH_SOURCE[0]}"
      exit 0
      ;;
    *)
      warn "unknown option $1; see --help"
      exit 2
      ;;
  esac
  shift
done
mkdir -p "$build_root"
build_root=$(cd "$build_root" && pwd -P)
cd "$cadre_root"
start=$SECONDS

# --- results ---------------------------------------------------------------------------------------------------------

results=$(mktemp "${TMPDIR:-/tmp}/cadre-test.XXXXXX")
trap 'rm -f "$results"' EXIT

record() { printf '%s\t%s\t%s\n' "$1" "$2" "${3:-}" >>"$results"; }
count() { grep -c "^$1	" "$results" || true; }

list() {
  local kind=$1 name reason
  while IFS=$'\t' read -r _ name reason; do
    printf '  %s%s\n' "$name" "${reason:+ ($reason)}"
  done < <(grep "^$kind	" "$results")
}

finish() {
  local passed failed skipped
  passed=$(count passed) failed=$(count failed) skipped=$(count skipped)
  printf '\n'
  say "finished in $(elapsed "$start")"
  if ((failed)); then
    say "failed:"
    list failed
  fi
  if ((skipped)); then
    say "skipped:"
    list skipped
  fi
  printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
  ((failed == 0)) || exit 1
  # A run that tested nothing must not look like a good one.
  ((passed > 0)) || exit 1
  exit 0
}

# run_tests BUILD PREFIX CTEST_OPTION...: runs ctest in a build and records what it says of each test.
run_tests() {
  local dir=$build_root/$1 prefix=$2 status=0 before
  shift 2
  local junit=$dir/junit.xml
  rm -f "$junit"
  before=$(count failed)
  if [[ -n $filter ]]; then set -- "$@" --no-tests=ignore -R "$filter"; else set -- "$@" --no-tests=error; fi
  # Output of passed tests is kept whole, for the cases that were skipped inside them.
  ctest --test-dir "$dir" --parallel "$(cores)" --output-on-failure --output-junit "$junit" \
    --test-output-size-passed 1000000 --test-output-size-failed 1000000 "$@" </dev/null || status=$?
  if [[ -f $junit ]]; then
    awk -f "$here/lib/junit.awk" "$junit" | sed "s|^\([a-z]*\)	|\1	$prefix|" >>"$results"
  fi
  # ctest may fail without any test to blame: no test found, a file it could not read.
  if ((status != 0)) && [[ $(count failed) == "$before" ]]; then
    record failed "${prefix}ctest" "ctest ended with status $status"
  fi
}

# input_tests: the names of the tests that read outside input, one a line.
input_tests() {
  ctest --test-dir "$build_root/release" -N -L '^input$' ${filter:+-R "$filter"} 2>/dev/null |
    sed -n 's/^ *Test *#[0-9]*: //p'
}

# build PRESET [TARGET]: configures and builds; a failure is recorded and returned. A target that the project does not
# have is the same as none: everything is built.
build() {
  local preset=$1 dir=$build_root/$1 log=$build_root/$1/build.log build_start=$SECONDS
  shift
  mkdir -p "$dir"
  : >"$log"
  say "$preset: building with $(cores) jobs (log: $log)"
  if configure_logged "$log" "$preset" "$dir"; then
    if (($#)) && ! cmake --build "$dir" --target help 2>/dev/null | grep -q "^$1: "; then shift; fi
    if ! build_logged "$log" "$dir" "$@"; then
      record failed "build of $preset" "see $log"
      return 1
    fi
    say "$preset: built in $(elapsed "$build_start")"
    return 0
  fi
  record failed "configuring $preset" "see $log"
  return 1
}

# --- run -------------------------------------------------------------------------------------------------------------

if ((setup)); then
  "$here/setup.sh" --for test || {
    record failed setup "packages are missing; see above"
    finish
  }
fi

if build release; then
  say "release: running the tests"
  run_tests release ''
fi

if ((fast)); then finish; fi

missing_tool=
command -v clang++-19 >/dev/null 2>&1 || missing_tool=clang-19
if [[ -z $missing_tool ]] && ! echo 'int main() { return 0; }' |
  clang++-19 -fsanitize=address,undefined -x c++ - -o "$build_root/sanitizer_probe" >/dev/null 2>&1; then
  missing_tool=libclang-rt-19-dev
fi
rm -f "$build_root/sanitizer_probe"
if [[ -n $missing_tool ]]; then
  # The release build knows which tests would have run.
  while IFS= read -r name; do
    record skipped "asan: $name" "$missing_tool is not installed"
  done < <(input_tests)
else
  symbolizer=/usr/lib/llvm-19/bin/llvm-symbolizer
  if [[ -x $symbolizer ]]; then export ASAN_SYMBOLIZER_PATH=${ASAN_SYMBOLIZER_PATH:-$symbolizer}; fi
  export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
  # Only the programs that read outside input are built a second time.
  if build asan input_tests; then
    say "asan: running the tests of outside input"
    run_tests asan 'asan: ' -L '^input$'
  fi
fi

if [[ -z $filter ]]; then
  if ! command -v clang-format-19 >/dev/null 2>&1; then
    record skipped 'source layout' 'clang-format-19 is not installed'
  else
    say "checking the source layout"
    if git -C "$cadre_root" rev-parse --is-inside-work-tree >/dev/null 2>&1; then
      mapfile -d '' -t sources < <(git ls-files -z '*.cc' '*.h' '*.c')
    else
      mapfile -d '' -t sources < <(find . -path './build*' -prune -o -type f \
        \( -name '*.cc' -o -name '*.h' -o -name '*.c' \) -print0)
    fi
    # A file that was just deleted is still tracked.
    for i in "${!sources[@]}"; do [[ -f ${sources[i]} ]] || unset "sources[i]"; done
    if ((${#sources[@]} == 0)); then
      record failed 'source layout' 'no source file found'
    elif clang-format-19 --dry-run --Werror "${sources[@]}"; then
      record passed 'source layout'
    else
      record failed 'source layout' 'run clang-format-19 -i on the files above'
    fi
  fi
fi

finish
