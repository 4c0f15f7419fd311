#!/bin/sh
# A program of an Android root (tests/android/kit.sh), as it runs there, on a computer for x86-64;
# one for arm64 by this computer's qemu (Linux 6.7):
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
  if [ "$(od -An -tx1 -j18 -N1 "$root/system/bin/sh")" = " b7" ]; then
    mkdir "$new/usr"
    mount --rbind /usr "$new/usr"
    ln -s usr/lib "$new/lib"
    ln -s usr/lib64 "$new/lib64"
    formats=$new/proc/sys/fs/binfmt_misc same="\xff\xff\xff\xff\xff\xff\xff"
    mount -t binfmt_misc none "$formats"
    printf %s ":arm64:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00:" \
      "$same\x00$same\xff\xfe\xff\xff\xff:/usr/bin/qemu-aarch64:" >"$formats/register"
  fi
  PATH=$path
  unset path
  exec /usr/sbin/chroot "$new" "$@"
' sh "$root" "$folder" "$@"
