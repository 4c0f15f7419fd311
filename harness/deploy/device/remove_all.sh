# $1 workdir. Removes all that these scripts ever made, in an order in which nothing is listed
# that is not there.
cd "$1" 2>/dev/null || { echo "${m}done"; exit 0; }
rm -rf listed && rm -rf sets store inuse .links .try-* || fail "cannot remove all below $1"
cd / && rmdir "$1" 2>/dev/null
echo "${m}done"
