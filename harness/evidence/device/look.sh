# Asks what a hung process does, with a native stack where a debugger is there, and ends it. Only a
# process that a call of the harness started is looked at, since numbers are used again.
threads() {
  cd "/proc/$p/task" && a= && for t in [0-9]*; do
    a="$a $t/comm $t/stat $t/wchan $t/syscall $t/stack"
  done
  $T grep -aH "" $a
}
status() { $T cat "/proc/$p/status"; }
maps() { $T cat "/proc/$p/maps"; }
files() { ls -l "/proc/$p/fd"; }
try() { # the next one is tried where one is missing or fails, as debuggerd does for whom it does
  # not trust; after one that took too long there is no time left for another
  command -v "$1" >/dev/null && {
    $T "$@"
    case $? in 0 | 124 | 137) ;; *) false ;; esac
  }
}
stack() {
  try debuggerd -b "$p" || try eu-stack -p "$p" || try gdb -nx -batch \
    -iex 'set auto-load off' -iex 'set debuginfod enabled off' -p "$p" \
    -ex 'thread apply all backtrace 48' || echo "$no_stack"
}

bounded "$seconds"
$T grep -aqs "$variable" "/proc/$p/environ" || exit 3
part threads "$most"
part status 16384
part maps "$most"
part files "$most"
part stack "$most"
kill -9 "$p"
