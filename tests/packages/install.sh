#!/bin/sh
# Install the packages that make root directories of Debian, and boot them, as root, on Debian.
set -eu

missing=
command -v debootstrap >/dev/null || [ -x /usr/sbin/debootstrap ] || missing="$missing debootstrap"
[ -e /usr/share/keyrings/debian-archive-keyring.gpg ] || missing="$missing debian-archive-keyring"
command -v systemd-nspawn >/dev/null || missing="$missing systemd-container"
if [ -z "$missing" ]; then exit 0; fi
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    echo "packages: these are missing; install them as root:$missing" >&2
    exit 1
fi
echo "packages: installing system packages:$missing"
apt-get update -qq
# shellcheck disable=SC2086 # a list of words
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
