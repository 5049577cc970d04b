#!/bin/sh
# Install packages in a root directory with its own apt. In mount and PID namespaces of its own:
# sh install.sh ROOT "PACKAGES TO INSTALL" "PACKAGES TO DOWNLOAD"
set -eu
root=$1 packages=$2 downloads=$3

mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
for file in /etc/resolv.conf /etc/hosts; do
    [ -e "$root$file" ] || touch "$root$file"
    mount --bind "$file" "$root$file"
done
# Nothing that is installed starts.
printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
chmod 755 "$root/usr/sbin/policy-rc.d"
apt() { chroot "$root" apt-get -qq -y --no-install-recommends -o Dpkg::Options::=--force-unsafe-io "$@" </dev/null; }
apt update
apt dist-upgrade
# shellcheck disable=SC2086 # lists of words
[ -z "$packages" ] || apt install $packages
apt clean
# shellcheck disable=SC2086
[ -z "$downloads" ] || apt install --download-only $downloads
rm "$root/usr/sbin/policy-rc.d"
