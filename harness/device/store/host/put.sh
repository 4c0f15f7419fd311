# Takes one file into the folder, from stdin, and makes room for it.
# $1 folder, $2 its name there: its sha256, and `-x` if it may be executed, $3 its size, $4 how many
# bytes may be kept, $5 a random word.
m=@qnn-harness:
fail() { rm -f "$t"; echo "${m}fail $*"; exit 1; }
echo "${m}begun"
umask 077; LC_ALL=C TIME_STYLE=locale; export LC_ALL TIME_STYLE
t=.put.$5; d=${1:-$HOME/.cache/qnn-harness/pushes}
mkdir -p "$d" && cd "$d" && [ -O . ] || fail "cannot keep anything in $d"
trap 'rm -f "$t"' EXIT
trap 'exit 1' HUP INT PIPE TERM
[ ! -f "$2" ] || { echo "${m}done"; exit; }
# what nobody writes any more: who did was killed with this host
find . -name '.put.*' -mtime +0 -exec rm -f {} +
left=$(($4 - $3))
# shellcheck disable=SC2012 # what was used last stands first, and no name of ours is a strange one
ls -lnt | while read -r _ _ _ _ size _ _ _ f; do
  case $f in [0-9a-f]*) left=$((left - size)); [ "$left" -ge 0 ] || rm -f "$f";; esac
done
: >"$t" || fail "cannot write to $d"
echo "${m}send"
head -c "$3" >"$t" || fail "cannot write to $d"
found=$(sha256sum <"$t")
[ "${found%% *}" = "${2%-x}" ] || { rm -f "$t"; exit 1; }
case $2 in *-x) chmod 555 "$t";; *) chmod 444 "$t";; esac
mv -f "$t" "$2" && echo "${m}done"
