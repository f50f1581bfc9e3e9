#!/usr/bin/env bash
# Runs `cadre serve` on this machine under mixed load while adapters are loaded, replaced and unloaded, and checks every
# answer, the memory and the end: tests/e2e/soak/soak.py says how.
#
# usage: scripts/soak.sh [SECONDS] [--binary CADRE] [--family NAME] [--workers N] [--seed N]
#
#   SECONDS          how long; default: 600
#   --binary CADRE   the program; default: the one in build/release
#   --family NAME    a model of examples/models; default: qwen3_moe, then nemotron_h for a fifth of the time
#   --workers N      clients at a time; default: 24
#   --seed N         of the questions and their order; default: 1
#   --help           this text
#
# Exit status: 0 when nothing was wrong.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source=scripts/lib/common.sh
source "$here/lib/common.sh"

seconds=600 binary=$cadre_root/build/release/src/cli/cadre family='' more=()
while (($#)); do
  case $1 in
    --binary | --family | --workers | --seed)
      value=$(option_value "$@") || exit 2
      case $1 in
        --binary) binary=$value ;;
        --family) family=$value ;;
        *) more+=("$1" "$value") ;;
      esac
      shift
      ;;
    -h | --help)
      usage_of "${BASH_SOURCE[0]}"
      exit 0
      ;;
    [1-9]*[!0-9]* | [!1-9]*)
      warn "unknown option $1; see --help"
      exit 2
      ;;
    *) seconds=$1 ;;
  esac
  shift
done
if [[ ! -x $binary ]]; then
  warn "$binary is not there; build it, or name another with --binary"
  exit 2
fi

soak() {
  python3 -B "$cadre_root/tests/e2e/soak/soak.py" --binary "$binary" --source "$cadre_root" "${more[@]}" \
    --family "$1" --seconds "$2"
}

if [[ -n $family ]]; then
  soak "$family" "$seconds"
else
  status=0
  soak qwen3_moe "$seconds" || status=1
  # The other kind of state: recurrent beside paged.
  soak nemotron_h $((seconds < 50 ? 10 : seconds / 5)) || status=1
  exit "$status"
fi
