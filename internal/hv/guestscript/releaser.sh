# Ends the input of a command that waits for it: $1 is the name of the pipe, the
# rest are the paths that it may have. It waits a moment for one that is only
# just starting.
i=0
shift
while [ $i -lt 50 ]; do
  for p; do
    [ -p "$p" ] && : >"$p" && exit 0
  done
  sleep 0.1 2>/dev/null || sleep 1
  i=$((i + 1))
done
exit 1
