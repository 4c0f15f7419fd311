#!/bin/sh
# getprop [NAME [DEFAULT]]: the device's properties.
table=@TABLE@
[ $# -eq 0 ] && exec cat "$table"
while IFS= read -r line; do
  case $line in
    "[$1]: ["*) line=${line#*"]: ["}; printf '%s\n' "${line%]}"; exit 0 ;;
  esac
done < "$table"
printf '%s\n' "$2"
