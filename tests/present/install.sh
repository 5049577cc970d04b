#!/bin/sh
# Install the browser that opens the page of a report in a test, as root, on Debian.
set -eu

for command in chromium chromium-browser google-chrome; do
    ! command -v $command >/dev/null || exit 0
done
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    echo "install: a browser is missing; install chromium as root" >&2
    exit 1
fi
echo "install: system packages: chromium"
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null
