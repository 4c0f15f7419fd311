#!/bin/sh
# A program of an Android root (tests/android/kit.sh), as it runs there, on a computer for x86-64:
#   enter.sh ROOT FOLDER PROGRAM [ARGUMENT...]
# FOLDER of this computer has the same path there. The environment stays as it is.
set -eu
path=$PATH PATH=/usr/sbin:/usr/bin:/sbin:/bin
export path
root=$1 folder=$(readlink -f "$2")
shift 2
exec unshare --user --map-root-user --mount sh -c '
  set -eu
  root=$1 folder=$2 new=$1/apex # an empty folder of the root, whose own content stays as it is
  shift 2
  mount -t tmpfs -o size=1m,mode=755 none "$new"
  mkdir -p "$new/system" "$new/proc" "$new/dev" "$new/sys" "$new/data/local/tmp" "$new$folder"
  ln -s /system/bin "$new/bin"
  for shared in /proc /dev /sys "$folder"; do mount --rbind "$shared" "$new$shared"; done
  mount --bind "$root/system" "$new/system"
  PATH=$path
  unset path
  exec /usr/sbin/chroot "$new" "$@"
' sh "$root" "$folder" "$@"
