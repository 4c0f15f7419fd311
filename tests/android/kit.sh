#!/bin/sh
# Android for tests, out of a kit into the user's cache, used again once there:
#   kit.sh KIT.tar.xz   prints the folder with ndk/, x86_64-android11/ and arm64-android11/ in it
# The NDK's compilers in it stand in front of Debian's clang-16 and lld-16 (or newer).
set -eu

[ $# = 1 ] && [ -f "$1" ] || { echo "usage: $0 KIT.tar.xz" >&2 && exit 2; }
# another kit lands in a folder of its own
sum=$(sha256sum <"$1" | cut -c 1-16)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/qnn-harness-tests
made=$cache/android-$sum
[ ! -d "$made" ] || { echo "$made" && exit; }

mkdir -p "$cache"
new=$(mktemp -d "$cache/.new-XXXXXX")
trap 'rm -rf "$new"' EXIT
trap 'exit 130' INT TERM HUP
chmod 755 "$new"
tar -xJf "$1" -C "$new" --no-same-owner
for part in ndk/toolchains x86_64-android11/system/bin/sh arm64-android11/system/bin/linker64; do
  [ -e "$new/$part" ] || { echo "$1 has no $part" >&2 && exit 2; }
done
# whoever was faster has made the same
mv -T "$new" "$made" 2>/dev/null || [ -d "$made" ]
echo "$made"
