#!/bin/busybox sh
# The guest's first program, in the initramfs: put the host's root file system, the layer in memory and the kernel's
# modules together, and hand over to guest.sh there. It is process 1 throughout, so that the kernel's modprobe changes
# its root too. An error ends it, and with it the machine (panic=-1).
set -eu
busybox=/bin/busybox
$busybox mount -t proc proc /proc
$busybox mount -t sysfs sysfs /sys
$busybox mount -t devtmpfs devtmpfs /dev
for module in /modules/*; do
    $busybox insmod "$module"
done
# CHECKOUT, MODULES, COMMAND
. /settings
export CHECKOUT COMMAND
$busybox mount -t virtiofs -o ro host /host
$busybox mount -t tmpfs -o size=75% memory /memory
$busybox mkdir /memory/upper /memory/scratch
$busybox mount -t overlay -o lowerdir=/host,upperdir=/memory/upper,workdir=/memory/scratch root /new
$busybox mkdir -p /new/lib/modules
$busybox mount -o bind "/host$MODULES" /new/lib/modules
for folder in proc sys dev; do
    $busybox mount -o move "/$folder" "/new/$folder"
done
exec $busybox switch_root /new /bin/sh "$CHECKOUT/tests/vm/guest.sh"
