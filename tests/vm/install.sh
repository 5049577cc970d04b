#!/bin/sh
# Install the packages for the virtual machine, as root, on Debian 12; tests/install.sh installs those of the tests.
set -eu

missing=
command -v qemu-system-x86_64 >/dev/null || missing="$missing qemu-system-x86"
[ -x /usr/lib/qemu/virtiofsd ] || missing="$missing qemu-system-common"
# Static, because the initramfs has no libraries.
[ -x /bin/busybox ] && ! ldd /bin/busybox >/dev/null 2>&1 || missing="$missing busybox-static"
command -v depmod >/dev/null || [ -x /sbin/depmod ] || missing="$missing kmod"
# For user-mode Linux, which is built once.
for program in gcc make flex bison bc perl; do
    command -v "$program" >/dev/null || missing="$missing $program"
done
command -v xz >/dev/null || missing="$missing xz-utils"
[ -e /usr/include/stdio.h ] || missing="$missing libc6-dev"
# For IPVS scripts.
command -v ipvsadm >/dev/null || [ -x /usr/sbin/ipvsadm ] || missing="$missing ipvsadm"
command -v conntrack >/dev/null || [ -x /usr/sbin/conntrack ] || missing="$missing conntrack"
[ -n "$missing" ] || exit 0

if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    echo "test-vm: missing packages; install them as root:$missing" >&2
    exit 1
fi
echo "test-vm: installing system packages:$missing"
apt-get update -qq
# shellcheck disable=SC2086 # a list of words
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
