# What the scripts share: where the project is, how they speak, how they build quietly. Sourced, never run.
# shellcheck shell=bash

cadre_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
cadre_script=${0##*/}
cadre_script=${cadre_script%.sh}

say() { printf '%s: %s\n' "$cadre_script" "$*"; }
warn() { printf '%s: %s\n' "$cadre_script" "$*" >&2; }
die() {
  warn "$*"
  exit 1
}

cores() { nproc 2>/dev/null || getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2; }

# elapsed START: the time since START (a value of SECONDS) as "3m 07s" or "9s".
elapsed() {
  local seconds=$((SECONDS - $1))
  if ((seconds >= 60)); then
    printf '%dm %02ds' $((seconds / 60)) $((seconds % 60))
  else
    printf '%ds' "$seconds"
  fi
}

# usage_of FILE: the comment block at the head of a script, which is its help text.
usage_of() { sed -n -e '1d' -e '/^#/!q' -e 's/^# \{0,1\}//p' "$1"; }

# option_value OPTION [VALUE]: prints the value, or ends the script when there is none.
option_value() {
  [[ $# -ge 2 && -n $2 ]] || die "$1 needs a value; see --help"
  printf '%s\n' "$2"
}

# run_logged LOG COMMAND...: all output goes to LOG; its last lines are shown if the command fails.
run_logged() {
  local log=$1 status=0
  shift
  mkdir -p "$(dirname "$log")"
  printf '$ %s\n' "$*" >>"$log"
  "$@" >>"$log" 2>&1 </dev/null || status=$?
  ((status == 0)) || show_failure "$log" "$status" "$@"
  return "$status"
}

show_failure() {
  local log=$1 status=$2
  shift 2
  warn "failed with status $status: $*"
  # Only what this command said: a log holds one "$ command" line for each.
  awk '/^\$ / { text = ""; next } { text = text $0 "\n" } END { printf "%s", text }' "$log" | tail -n 60 |
    sed 's/^/  | /' >&2
  warn "the whole output is in $log"
}

# Reads "[12/80] ..." lines as ninja prints them into LOG. On a terminal one line shows the progress; elsewhere a line
# is printed at each quarter.
follow_ninja() {
  local log=$1 line done_steps all_steps quarter last=0 terminal=0
  [[ -t 1 ]] && terminal=1
  while IFS= read -r line; do
    printf '%s\n' "$line" >>"$log"
    [[ $line =~ ^\[([0-9]+)/([0-9]+)\] ]] || continue
    done_steps=${BASH_REMATCH[1]} all_steps=${BASH_REMATCH[2]}
    if ((terminal)); then
      printf '\r%s:   %d of %d steps ' "$cadre_script" "$done_steps" "$all_steps"
    else
      quarter=$((done_steps * 4 / all_steps))
      if ((quarter > last)); then
        last=$quarter
        say "  $done_steps of $all_steps steps"
      fi
    fi
  done
  if ((terminal)); then printf '\r\033[K'; fi
}

# build_logged LOG DIR [TARGET...]: builds with all cores and little output.
build_logged() {
  local log=$1 dir=$2 status=0
  shift 2
  local command=(cmake --build "$dir" --parallel "$(cores)")
  (($# == 0)) || command+=(--target "$@")
  printf '$ %s\n' "${command[*]}" >>"$log"
  # The status is ninja's (pipefail): follow_ninja reads until the end and does not fail.
  NINJA_STATUS='[%f/%t] ' "${command[@]}" 2>&1 </dev/null | follow_ninja "$log" || status=$?
  ((status == 0)) || show_failure "$log" "$status" "${command[@]}"
  return "$status"
}

# ccache_options: the configure options that use ccache, one a line; nothing where there is no ccache.
ccache_options() {
  command -v ccache >/dev/null 2>&1 || return 0
  printf '%s\n' -DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache
}

# configure_logged LOG PRESET DIR [OPTION...]: configures a preset of CMakePresets.json into DIR.
configure_logged() {
  local log=$1 preset=$2 dir=$3 launcher
  shift 3
  mapfile -t launcher < <(ccache_options)
  (cd "$cadre_root" && run_logged "$log" cmake --preset "$preset" -B "$dir" "${launcher[@]}" "$@")
}
