# Removes what nobody began to use meanwhile.
# $1 workdir, $2 random name, $3 seconds that a claim lasts, $4 time that makes an entry invisible.
# stdin: `set NAME`, `entry NAME`, `drop INCOMING`, `unclaim MARK`, one a line.
w=$1
cd "$w" || fail "no folder $w"
gone=listed/.gone-$2; lasts=$3; t=$4
# one day at least: toybox takes `+0` for a second
find listed/.gone-* -prune -ctime +1 -exec rm -rf {} + 2>/dev/null
mkdir -p listed && mkdir "$gone" && cat >"$gone/.wanted" || fail "cannot write below $w"
trap 'rm -rf "$gone"' EXIT
hide() { [ $# -eq 0 ] || touch -c -t "$t" "$@" || fail "cannot set times"; }
set --
while read -r verb a; do
  case $verb in
    set) echo "${a%.*}"; mv -f "listed/$a" "$gone/$a" 2>/dev/null;;
    entry)
      echo "${a%.*}"
      set -- "$@" "store/$a"; [ $# -lt 200 ] || { hide "$@"; set --; };;
    unclaim) rm -f "inuse/$a";;
  esac
done <"$gone/.wanted" >"$gone/.names"
hide "$@"
prune "$lasts"
{ cat inuse/* 2>/dev/null; :; } >"$gone/.used" || fail "cannot write below $w"
used=$(grep -xFf "$gone/.names" "$gone/.used")
[ $? -le 1 ] || [ ! -s "$gone/.names" ] || fail "cannot read the claims of those who use $w"
nl='
'
while read -r verb a; do
  case $verb in
    set|entry)
      case $nl$used$nl in *"$nl${a%.*}$nl"*)
        echo "${m}kept $verb $a"
        [ "$verb" = entry ] || mv -f "$gone/$a" "listed/$a" 2>/dev/null
        continue;;
      esac;;
  esac
  case $verb in
    set) rm -rf "sets/$a";;
    entry) rm -f "store/$a";;
    drop) rm -rf "store/.incoming/$a";;
  esac || fail "cannot remove $a"
  echo "${m}removed $verb $a"
done <"$gone/.wanted"
space
echo "${m}done"
