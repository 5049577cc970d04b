#!/bin/sh
# Install what the tests and the demo need: system packages (as root, on Debian and Ubuntu) and a virtual environment.
# Usage: sh tests/install.sh DIRECTORY-OF-THE-ENVIRONMENT
set -eu
venv=$1

say() { echo "install: $*"; }
fail() { echo "install: $*" >&2; exit 1; }

# Commands, and the packages that have them in Debian and Ubuntu.
missing=
command -v nft >/dev/null || [ -x /usr/sbin/nft ] || missing="$missing nftables"
ldconfig -p 2>/dev/null | grep -q libnftables.so.1 || /sbin/ldconfig -p | grep -q libnftables.so.1 || missing="$missing libnftables1"
for command in iptables-nft-save iptables-legacy-save; do
    command -v $command >/dev/null || [ -x /usr/sbin/$command ] || { missing="$missing iptables"; break; }
done
command -v ipset >/dev/null || [ -x /usr/sbin/ipset ] || missing="$missing ipset"
command -v conntrack >/dev/null || [ -x /usr/sbin/conntrack ] || missing="$missing conntrack"
command -v ip >/dev/null || [ -x /sbin/ip ] || missing="$missing iproute2"
command -v sysctl >/dev/null || [ -x /sbin/sysctl ] || missing="$missing procps"
command -v setpriv >/dev/null || missing="$missing util-linux"

# The distribution's Python first: it is built with profile-guided optimisation, which one built from source often is not
# (3.11.7 without it needs 1.15 to 1.4 times the CPU time of Debian 12's 3.11.2).
python=
for candidate in ${PYTHON:-/usr/bin/python3 python3 python3.13 python3.12 python3.11}; do
    "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue
    # If none has the module ensurepip, the package python3-venv is installed below, for the first one.
    python=${python:-$candidate}
    if "$candidate" -c 'import ensurepip, venv' 2>/dev/null; then
        python=$candidate
        break
    fi
done
[ -n "$python" ] || missing="$missing python3"
"${python:-python3}" -c 'import ensurepip, venv' 2>/dev/null || missing="$missing python3-venv"

if [ -n "$missing" ]; then
    if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
        fail "these are missing; install them as root:$missing"
    fi
    say "system packages:$missing"
    apt-get update -qq
    # shellcheck disable=SC2086 # a list of words
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
    python=${python:-python3}
fi

say "virtual environment in $venv, with $("$python" --version)"
# An environment of another Python cannot be changed in place.
identity='import sys; print(sys.base_prefix, sys.version)'
clear=
[ ! -x "$venv/bin/python" ] || [ "$("$venv/bin/python" -c "$identity")" = "$("$python" -c "$identity")" ] || clear=--clear
"$python" -m venv $clear "$venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
