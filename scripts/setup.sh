#!/usr/bin/env bash
# Installs the packages that cadre needs and that are missing, with apt-get. Where nothing is missing it changes
# nothing and needs no rights.
#
# usage: scripts/setup.sh [--for run|test] [--check]
#
#   --for run    what builds and runs the cadre program
#   --for test   that, and what scripts/test.sh uses (the default)
#   --check      only say what is missing; exit 1 if anything is
#   --help       this text
#
# Exit status: 0 when cadre can be built (and tested); 1 when a package that this needs is missing; 2 for wrong usage.
# Tools that only single tests use are installed where the release has them; the rest goes on without.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source=scripts/lib/common.sh
source "$here/lib/common.sh"
# shellcheck source=scripts/lib/packages.sh
source "$here/lib/packages.sh"

purpose=test check=0
while (($#)); do
  case $1 in
    --for)
      purpose=$(option_value "$@") || exit 2
      shift
      ;;
    --for=*) purpose=${1#*=} ;;
    --check) check=1 ;;
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
case $purpose in
  run) groups=" run " what="build and run cadre" ;;
  test) groups=" run test tools " what="build and test cadre" ;;
  *)
    warn "--for takes run or test, got '$purpose'"
    exit 2
    ;;
esac

# --- the release -----------------------------------------------------------------------------------------------------

# CADRE_OS_RELEASE stands in for the machine's own file in the tests.
os_release=${CADRE_OS_RELEASE:-/etc/os-release}
release=unknown release_name="this system"
if [[ -r $os_release ]]; then
  # shellcheck disable=SC1090
  release=$(. "$os_release" && printf '%s:%s' "${ID:-unknown}" "${VERSION_ID:-}")
  # shellcheck disable=SC1090
  release_name=$(. "$os_release" && printf '%s' "${PRETTY_NAME:-${ID:-this system}}")
fi

# --- what is missing -------------------------------------------------------------------------------------------------

declare -A version_of=() reason_of=() least_of=()
required=() optional=() absent=() all=()

trim() {
  local text=$1
  text=${text#"${text%%[![:space:]]*}"}
  printf '%s' "${text%"${text##*[![:space:]]}"}"
}

# newer_or_equal HAVE LEAST: compares as versions; a Debian epoch ("4:12.2.0-3") does not count.
newer_or_equal() {
  local have=${1#*:}
  [[ $2 == - || $(printf '%s\n%s\n' "$2" "$have" | sort -V | head -n 1) == "$2" ]]
}

read_installed() {
  local name status version
  while IFS='|' read -r name status version; do
    [[ $status == installed ]] && version_of[$name]=$version
  done < <(dpkg-query -W -f '${Package}|${db:Status-Status}|${Version}\n' "$@" 2>/dev/null)
  return 0
}

# Fills required and optional with the packages that are missing or too old, absent with those that the release lacks.
find_missing() {
  local group package least reason name
  required=() optional=() absent=() all=() version_of=()
  local rows=()
  while IFS='|' read -r group package least reason; do
    group=$(trim "$group") package=$(trim "$package") least=$(trim "$least") reason=$(trim "$reason")
    [[ $groups == *" $group "* ]] || continue
    name=$(package_name "$release" "$package")
    reason_of[$package]=$reason
    if [[ -z $name ]]; then
      absent+=("$package")
      continue
    fi
    reason_of[$name]=$reason least_of[$name]=$least
    all+=("$name")
    rows+=("$group|$name|$least")
  done < <(cadre_packages)
  read_installed "${all[@]}"
  local row
  for row in "${rows[@]}"; do
    IFS='|' read -r group name least <<<"$row"
    if [[ -n ${version_of[$name]:-} ]] && newer_or_equal "${version_of[$name]}" "$least"; then continue; fi
    if [[ $group == tools ]]; then optional+=("$name"); else required+=("$name"); fi
  done
}

print_packages() {
  local name note
  for name in "$@"; do
    note=
    if [[ -n ${version_of[$name]:-} ]]; then note=" (${version_of[$name]} is there, ${least_of[$name]} is needed)"; fi
    printf '  %-20s %s%s\n' "$name" "${reason_of[$name]}" "$note"
  done
}

if ! command -v dpkg-query >/dev/null 2>&1; then
  warn "$release_name has no dpkg: install by your own means what these Debian 12 packages hold, then go on without setup.sh"
  while IFS='|' read -r group package least reason; do
    [[ $groups == *" $(trim "$group") "* ]] || continue
    printf '  %-20s %-6s %s\n' "$(trim "$package")" "$(trim "$least")" "$(trim "$reason")"
  done < <(cadre_packages) >&2
  exit 1
fi

find_missing
missing=("${required[@]}" "${optional[@]}")
note_absent() {
  ((${#absent[@]})) || return 0
  say "$release_name does not have these; the tests that use them are skipped and named:"
  print_packages "${absent[@]}"
}

if ((${#missing[@]} == 0)); then
  say "all ${#all[@]} packages needed to $what are there"
  note_absent
  exit 0
fi

known_release "$release" ||
  say "package names are known for Debian 12 and 13 and Ubuntu 24.04; $release_name is tried with the names of Debian 12"
say "${#missing[@]} of ${#all[@]} packages needed to $what are missing on $release_name:"
if ((${#required[@]})); then print_packages "${required[@]}"; fi
if ((${#optional[@]})); then print_packages "${optional[@]}"; fi
note_absent
((check == 0)) || exit 1

# --- install ---------------------------------------------------------------------------------------------------------

as_root=()
can_install=1
if ((${CADRE_EUID:-$EUID} != 0)); then
  if command -v sudo >/dev/null 2>&1 && { [[ -t 0 ]] || sudo -n true >/dev/null 2>&1; }; then
    as_root=(sudo)
  else
    can_install=0
  fi
fi
if ((can_install == 0)); then
  warn "no rights to install packages: run this as root, or with sudo in front of each apt-get"
  printf '\n  apt-get update && apt-get install -y --no-install-recommends %s\n\n' "${missing[*]}" >&2
  ((${#required[@]} == 0)) || exit 1
  say "going on: only tools of single tests are missing; those tests are skipped and named"
  exit 0
fi
command -v apt-get >/dev/null 2>&1 || die "dpkg is there but apt-get is not: install the packages above by your own means"

log=$(mktemp "${TMPDIR:-/tmp}/cadre-setup.XXXXXX")
trap 'rm -f "$log"' EXIT
# The terminal's answers are never waited for, and another apt-get that holds the lock is given two minutes.
apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive LC_ALL=C apt-get -q -o DPkg::Lock::Timeout=120)
start=$SECONDS

say "apt-get update"
# A broken source that has nothing to do with cadre also makes this fail, so the install below decides.
"${apt[@]}" update >"$log" 2>&1 </dev/null || {
  warn "apt-get update reported problems; trying to install all the same"
  grep -E '^(E|W|Err)[: ]' "$log" | head -n 5 | sed 's/^/  | /' >&2 || true
}

# candidate PACKAGE: the version that apt-get would install, or nothing.
candidate() { LC_ALL=C apt-cache policy "$1" 2>/dev/null | sed -n 's/^  Candidate: //p' | grep -v '^(none)$' || true; }

# install PACKAGE...: one apt-get for all of them.
install() {
  say "apt-get install $*"
  "${apt[@]}" install -y --no-install-recommends "$@" >"$log" 2>&1 </dev/null && return 0
  warn "apt-get could not install: $*"
  tail -n 20 "$log" | sed 's/^/  | /' >&2
  return 1
}

unfit=0
for name in "${required[@]}"; do
  offered=$(candidate "$name")
  if [[ -z $offered ]]; then
    warn "$release_name offers no package $name (${reason_of[$name]})"
    unfit=1
  elif ! newer_or_equal "$offered" "${least_of[$name]}"; then
    warn "$release_name offers $name $offered, and ${least_of[$name]} or newer is needed (${reason_of[$name]})"
    unfit=1
  fi
done
((unfit == 0)) || die "nothing was installed: use Debian 12, Ubuntu 24.04 or newer, or a container of them"
if ((${#required[@]})); then install "${required[@]}" || exit 1; fi

# Tools: each that the release has. A missing one costs the tests that use it, no more.
wanted=() unavailable=()
for name in "${optional[@]}"; do
  if [[ -n $(candidate "$name") ]]; then wanted+=("$name"); else unavailable+=("$name"); fi
done
if ((${#wanted[@]})); then install "${wanted[@]}" || true; fi
if ((${#unavailable[@]})); then
  say "$release_name does not offer these (on Ubuntu they are in universe); the tests that use them are skipped and named:"
  print_packages "${unavailable[@]}"
fi

find_missing
((${#required[@]} == 0)) || die "still missing after the install: ${required[*]}"
say "done in $(elapsed "$start"); $((${#all[@]} - ${#optional[@]})) of ${#all[@]} packages needed to $what are there"
