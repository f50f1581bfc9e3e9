# The Debian and Ubuntu packages that cadre needs, and what they are called where. Sourced by setup.sh.
# shellcheck shell=bash

# group | package | least version or - | what it is for
#
# run    what builds the cadre program: nothing works without them
# test   what builds the tests
# tools  what single tests and checks use: without one of them those are skipped, and named
#
# The least versions are those of Debian 12; older ones are not tried.
cadre_packages() {
  cat <<'TABLE'
run   | g++                | 12   | the C++20 compiler
run   | cmake              | 3.25 | configures the build
run   | ninja-build        | -    | runs the build
run   | pkg-config         | 0.29 | finds libraries that have no CMake files
run   | nlohmann-json3-dev | 3.11 | reads configurations, writes JSON
run   | libsimdjson-dev    | 3.0  | reads large JSON files: tokenizers, checkpoint headers
run   | libcli11-dev       | 2.1  | the command line of cadre
run   | libpcre2-dev       | 10.4 | the regular expressions of tokenizers
run   | libutf8proc-dev    | 2.8  | Unicode normal forms in tokenizers
run   | libxxhash-dev      | 0.8  | digests of adapters
run   | libboost1.81-dev   | 1.81 | HTTP: Boost.Beast and Asio
run   | prometheus-cpp-dev | 1.0  | the metrics of the server
run   | libyaml-cpp-dev    | 0.7  | configuration files of the server
run   | libssl-dev         | 3.0  | SHA-256 and random numbers for the server's keys
test  | libgtest-dev       | 1.12 | the framework of the tests
test  | libgmock-dev       | 1.12 | matchers of the tests
tools | python3            | 3.10 | runs the comparison of chat templates with Jinja2, and the tests of the programs
tools | python3-venv       | 3.10 | installs the official client of OpenAI's interface for its test
tools | curl               | -    | runs the examples of the documentation
tools | python3-jinja2     | 3    | what chat templates are compared with
tools | clang-19           | -    | the build with address and undefined-behaviour sanitizers
tools | libclang-rt-19-dev | -    | the sanitizers and the fuzzer of clang-19
tools | llvm-19            | -    | names functions and lines in the reports of the sanitizers
tools | clang-format-19    | -    | checks the layout of the sources
tools | clang-tidy-19      | -    | the linter of the tidy preset
TABLE
}

# package_name RELEASE PACKAGE: what RELEASE (ID:VERSION_ID of os-release) calls a package of the table, or nothing
# where it has none. Names are Debian 12's; a release that differs gets a row.
package_name() {
  case $1/$2 in
    debian:11/*-19 | debian:11/*-19-dev) ;;
    ubuntu:22.04/*-19 | ubuntu:22.04/*-19-dev) ;;
    debian:13/libboost1.81-dev | ubuntu:24.04/libboost1.81-dev) printf 'libboost1.83-dev\n' ;;
    *) printf '%s\n' "$2" ;;
  esac
}

# known_release RELEASE: whether the names are known to be right there.
known_release() {
  case $1 in
    debian:12 | debian:13 | ubuntu:24.04) return 0 ;;
    *) return 1 ;;
  esac
}
