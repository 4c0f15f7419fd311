# $1 the work folder, $2 seconds to wait in line (0: not at all), $3 a line that names the holder.
# Prints `held` or `acquired` and the line of the holder, or of the last one; `lacks` and a program
# that is missing. Holds the lock then until stdin ends or says nothing for 20 s.
# Runs in dash, mksh, bash and busybox.
m=@qnn-harness:
for program in flock timeout; do
  command -v "$program" >/dev/null || { printf "%s\n" "${m}lacks $program" "${m}end"; exit; }
done
mkdir -p "$1" && cd "$1" && [ -w . ] || { echo "${m}end"; exit; }
exec 8>>lease.next 9>>lease
lock() { # mksh keeps the files 8 and 9 from programs
  if [ "$2" = 0 ]; then flock -n 3; else timeout "$2" flock 3; fi 3>&"$1"
}
# the next in line has the first lock, so that no other overtakes it
answer=held
lock 8 "$2" && lock 9 "$2" && answer=acquired
exec 8>&-
holder=; read -r holder <lease
[ $answer = held ] || printf '%s\n' "$3" >lease
printf '%s\n' "$m$answer" "$holder" "${m}end"
[ $answer = acquired ] || exit 0
while timeout 20 sh -c 'read -r beat' 9>&-; do :; done
