#!/bin/sh
# setprop NAME VALUE: changes a property until the next boot; ro.* cannot be changed.
table=@TABLE@
[ $# -eq 2 ] || { echo 'usage: setprop NAME VALUE' >&2; exit 1; }
bad=
case $1 in ''|ro.*|*[!A-Za-z0-9._:@-]*) bad=1 ;; esac
case $2 in *'
'*) bad=1 ;; esac
[ -z "$bad" ] || { echo "Failed to set property '$1' to '$2'." >&2; exit 1; }
{
  while IFS= read -r line; do
    case $line in "[$1]: ["*) ;; *) printf '%s\n' "$line" ;; esac
  done < "$table"
  printf '[%s]: [%s]\n' "$1" "$2"
} | sort > "$table.$$" && mv "$table.$$" "$table"
