#!/bin/sh
# Run a command in a root directory, with a checkout at /knft and a virtual environment at /knft/.venv.
# Usage, in mount and PID namespaces of its own: sh enter.sh ROOT CHECKOUT VENV ro|rw SCRATCH [PATH ...] -- COMMAND ...
# ROOT and CHECKOUT are not changed: writes go to overlays in memory. Each PATH is mounted at the same place, read only.
# SCRATCH is an empty directory; SCRATCH/results is mounted at /results.
set -eu
root=$1 checkout=$2 venv=$3 mode=$4 scratch=$5
shift 5

layers=$scratch/layers
new=$layers/new
mkdir "$scratch/results" "$layers"
mount -t tmpfs -o mode=755 layers "$layers"
mkdir "$layers/root" "$layers/checkout" "$new"
# Bind mounts first, because a path in overlay options may contain no comma and no colon.
mount --bind "$root" "$layers/root"
mount --bind "$checkout" "$layers/checkout"

overlay() { # LOWER TARGET
    mkdir "$1-upper" "$1-work"
    mount -t overlay -o "lowerdir=$1,upperdir=$1-upper,workdir=$1-work" overlay "$2"
}

overlay "$layers/root" "$new"
mkdir -p "$new/knft" "$new/results" "$new/old"
overlay "$layers/checkout" "$new/knft"
mkdir -p "$new/knft/.venv"
mount --bind "$venv" "$new/knft/.venv"
mount -o "remount,bind,$mode" "$new/knft/.venv"
mount --bind "$scratch/results" "$new/results"
mount -t proc proc "$new/proc"
mount --rbind /sys "$new/sys"
mount --rbind /dev "$new/dev"
mount -t tmpfs -o mode=1777 tmp "$new/tmp"

while [ "$1" != -- ]; do
    if [ -d "$1" ]; then mkdir -p "$new$1"; else mkdir -p "$new${1%/*}" && touch "$new$1"; fi
    mount --bind "$1" "$new$1"
    mount -o remount,bind,ro "$new$1"
    shift
done
shift

# Not chroot: inside it the kernel refuses user namespaces, which the demo needs without root.
cd "$new"
pivot_root . old
umount -l /old
cd /knft
exec "$@"
