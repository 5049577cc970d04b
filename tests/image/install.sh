#!/bin/sh
# Install the package for the tests of the image, as root, on Debian.
set -eu

if command -v bwrap >/dev/null; then exit 0; fi
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    echo "test-image: bubblewrap is missing; install it as root" >&2
    exit 1
fi
echo "test-image: installing system packages: bubblewrap"
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends bubblewrap >/dev/null
