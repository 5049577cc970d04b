#!/bin/sh
# Install the shells that the tests of completion use, and the tools that check manual pages, as root, on Debian.
set -eu

missing=
for package in fish groff man-db mandoc zsh; do
    command=$package
    [ $package != man-db ] || command=man
    command -v $command >/dev/null || missing="$missing $package"
done
[ -n "$missing" ] || exit 0
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    echo "install: these are missing; install them as root:$missing" >&2
    exit 1
fi
echo "install: system packages:$missing"
apt-get update -qq
# shellcheck disable=SC2086 # a list of words
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
