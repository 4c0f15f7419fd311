#!/system/bin/sh
# A scripted stand-in for the parts of Android that run apps: `cmd` (package and activity manager),
# `dumpsys` and `logcat`, by the name that it is called by. Their words are those of AOSP's sources; no
# phone has confirmed them. /data/misc/scripted has what a test decides: `package` and `activity` of the
# APK, `app` (what its process does, in shell), `refusal`, `hangs` (a step), and `apps`, those installed.
d=/data/misc/scripted
me=${0##*/}
echo "$me $*" >>$d/calls
if [ "$me" = logcat ]; then
  case " $* " in *" -d "*) exec cat /data/misc/log ;; *) exec tail -n +1 -f /data/misc/log ;; esac
fi
[ "$(cat $d/hangs 2>/dev/null)" = "$2" ] && sleep 600
p=$(cat $d/package)
case "$me $1 $2" in
  "cmd package list") for a in android $(ls $d/apps); do echo "package:$a"; done ;;
  "cmd package install-create") echo "Success: created install session [77]" ;;
  "cmd package install-write")
    n=$(head -c "$4" | wc -c)
    [ "$n" = "$4" ] || { echo "Failure [INSTALL_FAILED_INVALID_APK: $n bytes]"; exit 1; }
    echo "Success: streamed $n bytes"
    ;;
  "cmd package install-commit")
    [ -s $d/refusal ] && { cat $d/refusal; exit 1; }
    echo 'versionCode=2 minSdk=29 targetSdk=35' >"$d/apps/$p"
    echo Success
    ;;
  "cmd package install-abandon") echo Success ;;
  "cmd package resolve-activity") echo "priority=0 isDefault=false"; cat $d/activity ;;
  "cmd package uninstall") rm "$d/apps/$p" && echo Success ;;
  "cmd activity force-stop") pidof "$p" | xargs kill ;;
  "cmd activity start")
    n=$(cat $d/activity)
    case " $* " in
      *" -n $n "*) ;;
      *) echo "Error type 3"; echo "Error: Activity class {$n} does not exist."; exit 1 ;;
    esac
    # a process of its own, as zygote's are, named as the package
    unset QNN_HARNESS_CALL
    # shellcheck disable=SC2016
    setsid sh -c 'exec -a "$0" sh "$1"' "$p" $d/app </dev/null >/dev/null 2>&1 &
    sleep 0.3
    echo "Status: ok"
    echo "TotalTime: 321"
    ;;
  "dumpsys package "*) [ -e "$d/apps/$2" ] && printf '  Packages:\n    %s\n    versionName=1.2\n' "$(cat "$d/apps/$2")" ;;
  "dumpsys activity exit-info") cat $d/exits ;;
esac
