#!/bin/sh
# The real adb for tests, out of Debian's packages into the user's cache, used again once there:
#   real_adb.sh adbd    prints the path of a root folder with the adbd of Debian 13 in it
#   real_adb.sh adb29   prints the path of the adb program that Debian 12 packages
# Needs mmdebstrap; root only where that cannot use user namespaces.
set -eu

cache=${XDG_CACHE_HOME:-$HOME/.cache}/qnn-harness-tests
case ${1-} in # count the number in the name up when the recipe changes
adbd) made=$cache/adbd-2 program=/usr/sbin/adbd told=$made ;;
adb29) made=$cache/adb29-1 program=/adb told=$made/adb ;;
*) echo "usage: $0 adbd|adb29" >&2 && exit 2 ;;
esac
[ ! -x "$made$program" ] || { echo "$told" && exit; }
command -v mmdebstrap >/dev/null || {
  echo "mmdebstrap is missing: apt install mmdebstrap" >&2
  exit 2
}

mkdir -p "$cache"
new=$(mktemp -d "$cache/.new-XXXXXX")
trap 'rm -rf "$new"' EXIT
trap 'exit 130' INT TERM HUP
chmod 755 "$new"
if [ "$1" = adbd ]; then
  # adbd needs a newer libc than Debian 12 has, hence a root of its own
  mmdebstrap --quiet --variant=minbase --include=adbd,libatomic1 \
    --dpkgopt='path-exclude=/usr/share/doc/*' \
    --dpkgopt='path-exclude=/usr/share/man/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' \
    --customize-hook='mkdir -p "$1/data"' \
    --customize-hook='rm -rf "$1"/var/cache/apt/* "$1"/var/lib/apt/lists/*' \
    trixie "$new" >&2
else
  # unpacked, not installed: neither the machine's PATH nor its version of Debian matters
  mmdebstrap --quiet --variant=extract --include=adb bookworm "$new" >&2
  rm -rf "${new:?}/var" "${new:?}/usr/share"
  cat >"$new/adb" <<'EOF'
#!/bin/sh
here=${0%/*}
lib=$here/usr/lib/$(uname -m)-linux-gnu
for loader in "$here"/lib*/ld-linux-*.so.* "$here"/lib/*/ld-linux-*.so.*; do
  [ ! -x "$loader" ] || break
done
exec "$loader" --library-path "$lib/android:$lib:$here/lib/$(uname -m)-linux-gnu" \
  "$here/usr/lib/android-sdk/platform-tools/adb" "$@"
EOF
  chmod 755 "$new/adb"
fi
# whoever was faster has made the same
mv -T "$new" "$made" 2>/dev/null || [ -x "$made$program" ]
echo "$told"
