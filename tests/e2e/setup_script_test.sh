#!/usr/bin/env bash
# Checks scripts/setup.sh against a made-up machine: small programs stand in for dpkg-query, apt-get, apt-cache and sudo,
# with one file an installed package.
set -uo pipefail
root=${1:?usage: setup_script_test.sh SOURCE_DIR}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir "$dir/bin" "$dir/installed" "$dir/offered"

# The machine's own tools, by name: nothing else is reachable, so a real package manager cannot be.
for tool in bash env sed sort head tail grep mktemp rm mkdir dirname cat date; do
  ln -s "$(type -P "$tool")" "$dir/bin/$tool"
done
stub() {
  cat >"$dir/bin/$1"
  chmod +x "$dir/bin/$1"
}
stub dpkg-query <<'STUB'
#!/usr/bin/env bash
status=0
for name in "${@:4}"; do
  if [[ -f $STAND_IN/installed/$name ]]; then echo "$name|installed|$(cat "$STAND_IN/installed/$name")"; else status=1; fi
done
exit $status
STUB
stub apt-cache <<'STUB'
#!/usr/bin/env bash
[[ -f $STAND_IN/offered/$2 ]] && printf '%s:\n  Installed: (none)\n  Candidate: %s\n' "$2" "$(cat "$STAND_IN/offered/$2")"
exit 0
STUB
stub apt-get <<'STUB'
#!/usr/bin/env bash
echo "apt-get $*" >>"$STAND_IN/calls"
[[ ${DEBIAN_FRONTEND:-} == noninteractive ]] || exit 9
install=0
for word in "$@"; do
  case $word in
    install) install=1 ;;
    -* | DPkg::*) ;;
    *)
      ((install)) || continue
      [[ -f $STAND_IN/offered/$word ]] || exit 100
      cp "$STAND_IN/offered/$word" "$STAND_IN/installed/$word"
      ;;
  esac
done
STUB
ln -s "$(type -P cp)" "$dir/bin/cp"

packages=(g++ cmake ninja-build pkg-config nlohmann-json3-dev libsimdjson-dev libcli11-dev libpcre2-dev libutf8proc-dev
  libxxhash-dev libboost1.81-dev libboost1.83-dev prometheus-cpp-dev libyaml-cpp-dev libssl-dev libgtest-dev
  libgmock-dev python3 python3-venv curl python3-jinja2 clang-19 libclang-rt-19-dev llvm-19 clang-format-19 clang-tidy-19)
declare -A version=([g++]=4:12.2.0-3 [cmake]=3.25.1-1 [nlohmann-json3-dev]=3.11.2-2)
fresh_machine() {
  rm -f "$dir"/installed/* "$dir"/offered/* "$dir/calls" "$dir/bin/sudo"
  : >"$dir/calls"
  local name
  for name in "${packages[@]}"; do echo "${version[$name]:-99.0-1}" >"$dir/offered/$name"; done
  printf 'ID=debian\nVERSION_ID="12"\nPRETTY_NAME="Debian 12"\n' >"$dir/os-release"
}
full_machine() {
  fresh_machine
  cp "$dir"/offered/* "$dir/installed/"
}

# setup EUID ARGS...: runs the script; its output is in $output, its status in $status.
setup() {
  local euid=$1
  shift
  status=0
  output=$(env -i PATH="$dir/bin" HOME="$dir" TMPDIR="$dir" STAND_IN="$dir" CADRE_EUID="$euid" \
    CADRE_OS_RELEASE="$dir/os-release" bash "$root/scripts/setup.sh" "$@" 2>&1 </dev/null) || status=$?
}

failures=0
check() {
  local what=$1
  shift
  if ! "$@"; then
    echo "FAILED: $what (status $status); output:"
    printf '  | %s\n' "${output//$'\n'/$'\n  | '}"
    failures=$((failures + 1))
  fi
}
says() { grep -qF -- "$1" <<<"$output"; }
ends_with() { [[ $status == "$1" ]]; }
one_line() { [[ $(wc -l <<<"$output") == 1 ]]; }
no_calls() { [[ ! -s $dir/calls ]]; }
calls() { [[ $(grep -c -- "$1" "$dir/calls") == "$2" ]]; }

full_machine
setup 1000
check "nothing missing: status 0" ends_with 0
check "nothing missing: one line" one_line
check "nothing missing: no apt-get" no_calls
setup 1000 --check --for run
check "nothing missing: --check ends with 0" ends_with 0

full_machine
rm "$dir/installed/libpcre2-dev" "$dir/installed/clang-19"
setup 0 --check
check "--check ends with 1" ends_with 1
check "--check names the package" says libpcre2-dev
check "--check says what for" says "regular expressions of tokenizers"
check "--check installs nothing" no_calls
setup 0 --check --for run
check "--for run does not ask for tools" eval '! says clang-19'

setup 1000
check "no rights: status 1" ends_with 1
check "no rights: the line to run" says "apt-get install -y --no-install-recommends libpcre2-dev clang-19"
check "no rights: no apt-get" no_calls
full_machine
rm "$dir/installed/clang-19"
setup 1000
check "no rights, only a tool missing: status 0" ends_with 0
check "no rights, only a tool missing: still the line to run" says "--no-install-recommends clang-19"

fresh_machine
setup 0
check "bare machine: status 0" ends_with 0
check "bare machine: one update" calls ' update$' 1
check "bare machine: two installs" calls ' install ' 2
check "bare machine: no recommended packages" calls 'install -y --no-install-recommends' 2
setup 0
check "second run: one line" one_line
check "second run: nothing more" calls ' update$' 1

fresh_machine
stub sudo <<'STUB'
#!/usr/bin/env bash
echo "sudo $*" >>"$STAND_IN/calls"
[[ $1 == -n ]] && shift
exec "$@"
STUB
ln -sf "$(type -P true)" "$dir/bin/true"
setup 1000 --for run
check "with sudo: status 0" ends_with 0
check "with sudo: it is used for each apt-get" calls '^sudo env .*apt-get' 2

full_machine
echo 3.22.1-1ubuntu1 >"$dir/installed/cmake"
setup 0 --check --for run
check "too old: missing" ends_with 1
check "too old: says both versions" says "3.22.1-1ubuntu1 is there, 3.25 is needed"
echo 3.22.1-1ubuntu1 >"$dir/offered/cmake"
setup 0 --for run
check "too old and no newer: status 1" ends_with 1
check "too old and no newer: says so" says "offers cmake 3.22.1-1ubuntu1, and 3.25 or newer is needed"
check "too old and no newer: nothing installed" calls ' install ' 0

fresh_machine
rm "$dir/offered/clang-19" "$dir/offered/libclang-rt-19-dev"
printf 'ID=ubuntu\nVERSION_ID="24.04"\nPRETTY_NAME="Ubuntu 24.04 LTS"\n' >"$dir/os-release"
setup 0
check "tool not offered: status 0" ends_with 0
check "tool not offered: named" says "Ubuntu 24.04 LTS does not offer these"
check "tool not offered: the others are installed" test -f "$dir/installed/clang-format-19"

fresh_machine
printf 'ID=linuxmint\nVERSION_ID="22"\nPRETTY_NAME="Linux Mint 22"\n' >"$dir/os-release"
setup 0 --for run
check "other release: Debian's names are tried" says "Linux Mint 22 is tried with the names of Debian 12"
check "other release: status 0" ends_with 0

full_machine
mv "$dir/bin/dpkg-query" "$dir/dpkg-query"
setup 0 --for run
check "no dpkg: status 1" ends_with 1
check "no dpkg: lists what to install" says libsimdjson-dev
mv "$dir/dpkg-query" "$dir/bin/dpkg-query"

setup 0 --for nothing
check "wrong purpose: status 2" ends_with 2
setup 0 --wrong
check "wrong option: status 2" ends_with 2

((failures == 0)) || exit 1
echo "all checks of scripts/setup.sh passed"
