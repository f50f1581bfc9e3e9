#!/usr/bin/env bash
# Whether cadre serve answers /health on this machine: exit status 0 or 1. Needs nothing but bash.
#
# usage: healthcheck.sh [PORT]   (default: CADRE_SERVE_PORT, or 8000)
set -u
port=${1:-${CADRE_SERVE_PORT:-8000}}
exec 3<>"/dev/tcp/127.0.0.1/$port" || exit 1
printf 'GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' >&3
read -r -t 5 _ status _ <&3 || exit 1
[[ $status == 200 ]]
