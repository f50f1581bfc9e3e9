#!/usr/bin/env bash
# Builds cadre and lets both demo models answer, plain and under each of their adapters.
#
# usage: scripts/quickstart.sh [--build-dir DIR] [--no-setup]
#
#   --build-dir DIR  where to build (default: build/quickstart)
#   --no-setup       do not look for missing packages, and install none
#   --help           this text
#
# Needs no rights where the packages of scripts/setup.sh are there. Exit status: 0 when every command answered.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source=scripts/lib/common.sh
source "$here/lib/common.sh"

build_dir=$cadre_root/build/quickstart setup=1
while (($#)); do
  case $1 in
    --build-dir)
      build_dir=$(option_value "$@") || exit 2
      shift
      ;;
    --build-dir=*) build_dir=${1#*=} ;;
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
mkdir -p "$build_dir"
build_dir=$(cd "$build_dir" && pwd -P)
cd "$cadre_root"

start=$SECONDS
if ((setup)); then "$here/setup.sh" --for run; fi

# --- build -----------------------------------------------------------------------------------------------------------

build_start=$SECONDS
log=$build_dir/quickstart.log
: >"$log"
say "building the cadre program in $build_dir with $(cores) jobs (log: $log)"
configure_logged "$log" release "$build_dir" -DCADRE_BUILD_TESTS=OFF || exit 1
build_logged "$log" "$build_dir" cadre || exit 1
say "built in $(elapsed "$build_start")"

# --- show ------------------------------------------------------------------------------------------------------------

bin=$(cd "$build_dir/src/cli" && pwd -P)
export PATH=$bin:$PATH
failed=0

# show COMMAND...: prints a command as one would type it, then runs it.
show() {
  local word text='' status=0
  for word in "$@"; do
    if [[ $word =~ ^[A-Za-z0-9_./:=,+-]+$ ]]; then text+=" $word"; else text+=" '${word//\'/\'\\\'\'}'"; fi
  done
  printf '\n$%s\n' "$text"
  "$@" </dev/null || status=$?
  if ((status)); then
    warn "that ended with status $status"
    failed=$((failed + 1))
  fi
}

# shellcheck disable=SC2016
printf '\n$ export PATH="%s:$PATH"\n$ cd "%s"\n' "$bin" "$cadre_root/examples/models"
cd examples/models
for model in qwen3_moe nemotron_h; do
  printf '\n=== %s: the model as it is, and under three adapters\n' "$model"
  adapters=()
  for adapter in spanish jargon elements; do adapters+=(--adapter "$adapter=$model/adapters/$adapter"); done
  # All answer the same question; "elements" is the adapter that was trained for it.
  show cadre run --model "$model" "${adapters[@]}" --use all --chat 'Element: gold' --max-tokens 32
  show cadre run --model "$model" --adapter "spanish=$model/adapters/spanish" --use spanish \
    --prompt 'En el principio' --max-tokens 32
  show cadre explain --model "$model"
done

printf '\n'
((failed == 0)) || die "$failed of 6 commands failed"
say "done in $(elapsed "$start"); the program is $bin/cadre, and its --help says what else it does"
