# Stands before each of the store's scripts, and tells them what boot this is.
# They run in dash, mksh, bash and busybox; see store_client.py for what keeps hosts from harm.
m=@qnn-harness:
LC_ALL=C TZ=UTC; export LC_ALL TZ
fail() { echo "${m}fail $*"; exit 1; }
boot=; read -r boot 2>/dev/null </proc/sys/kernel/random/boot_id
up=; read -r up x 2>/dev/null </proc/uptime; up=${up%%.*}
case $up in ''|*[!0-9]*) up=0;; esac
[ -n "$boot" ] || boot=unknown
prune() { # SECONDS: removes the claims of those that must be gone
  for f in inuse/*; do
    [ -f "$f" ] || continue
    at=; since=; read -r at since 2>/dev/null <"$f"
    case $since in ''|*[!0-9]*) at=;; esac
    [ "$at" = "$boot" ] && [ $((up - since)) -lt "$1" ] || rm -f "$f"
  done
}
space() { # to root, some df give what is kept back for the system, too
  df -kP . 2>/dev/null | {
    d=; while IFS= read -r x; do d=$x; done
    echo "${m}df $d $(stat -f -c 'free %a %S' . 2>/dev/null)"
  }
}
timed= # whether this device's stat tells times
show() { # KIND PATH...: size and times of all files there
  k=$1; shift
  if [ -n "$timed" ]; then
    find "$@" ! -type d -exec stat -L -c "$m$k %s|%Y|%n" {} + 2>/dev/null
  else
    find "$@" ! -type d 2>/dev/null |
      while IFS= read -r f; do s=$(wc -c <"$f") && echo "$m$k $((s))|0|$f"; done
  fi
}
