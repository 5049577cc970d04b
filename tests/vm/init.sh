#!/bin/busybox sh
# The init of the initramfs: mount the host's root file system, an overlay in memory and the kernel's modules, and
# execute guest.sh there. It stays process 1, so that the kernel's modprobe uses the new root too. An error ends it, and
# the machine with it (panic=-1; user-mode Linux aborts).
set -eu
busybox=/bin/busybox
$busybox mount -t proc proc /proc
$busybox mount -t sysfs sysfs /sys
$busybox mount -t devtmpfs devtmpfs /dev
for module in /modules/*; do
    $busybox insmod "$module"
done
# CHECKOUT, MODULES, COMMAND, SHARE, GUEST
. /settings
export CHECKOUT COMMAND GUEST
$busybox mount -t "$SHARE" -o ro host /host
$busybox mount -t tmpfs -o size=75% memory /memory
$busybox mkdir /memory/upper /memory/scratch
$busybox mount -t overlay -o lowerdir=/host,upperdir=/memory/upper,workdir=/memory/scratch root /new
$busybox mkdir -p /new/lib/modules
$busybox mount -o bind "/host$MODULES" /new/lib/modules
for folder in proc sys dev; do
    $busybox mount -o move "/$folder" "/new/$folder"
done
exec $busybox switch_root /new /bin/sh "$CHECKOUT/tests/vm/guest.sh"
