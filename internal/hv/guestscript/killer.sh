# Kills the session of the command with the name $1. It waits a moment for one that is only just
# starting.
i=0
while [ $i -lt 50 ]; do
  for d in /tmp /var/tmp /run; do
    [ -s "$d/$1/pid" ] && read -r pid <"$d/$1/pid" && kill -9 "-$pid" && exit 0
  done
  sleep 0.1 2>/dev/null || sleep 1
  i=$((i + 1))
done
exit 1
