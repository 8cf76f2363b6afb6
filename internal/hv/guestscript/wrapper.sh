# Runs a command in the guest for the host: $1 is a unique name, the rest is the
# command. $input, unless empty, names the pipe for its stdin.
# Its outputs go through pipes that are read to their end whatever happens, and
# only their last part is kept. When the command ends, children that it left
# behind may keep the outputs open: they delay nothing, and get no signal when
# their outputs are no longer read.
umask 077
name=$1
limit=1048576
for d in /tmp /var/tmp /run; do
  mkdir "$d/$1" 2>/dev/null && break
done
d=$d/$1
shift
mkfifo "$d/o" "$d/e" ${input:+"$d/$input"} || exit 126
keep() { # stdin -> pieces $d/$1.N; the newest ones hold at least $limit bytes
  n=100000 first=100001 size=0
  while :; do
    n=$((n + 1))
    dd bs=65536 count=256 of="$d/$1.$n"
    failed=$?
    [ -s "$d/$1.$n" ] || break
    got=$(wc -c <"$d/$1.$n")
    size=$((size + got))
    while [ $size -gt $limit ] && old=$(wc -c <"$d/$1.$first") && [ $((size - old)) -ge $limit ]; do
      rm -f "$d/$1.$first"
      size=$((size - old)) first=$((first + 1))
    done
    [ "$got" -ge 256 ] || break # fewer bytes than reads: that was the end
  done
  [ $failed = 0 ] || cat >/dev/null # after a full disk there may be more
  : >"$d/$1-end"
  # Both keepers may come here at once and get into each other's way.
  [ -e "$d/left" ] && ended && { rm -rf "$d" || { sleep 1; rm -rf "$d"; }; }
}
ended() { [ -e "$d/o-end" ] && [ -e "$d/e-end" ]; }
# A redirection of its own would leave some shells a copy of our outputs, and
# the starter of this script would wait for their end.
(exec <"$d/o" >/dev/null 2>&1; keep o) &
(exec <"$d/e" >/dev/null 2>&1; keep e) &
# macOS has no setsid.
if command -v setsid >/dev/null 2>&1; then
  session() { setsid "$@"; }
else
  session() { perl -e 'use POSIX; POSIX::setsid(); exec @ARGV' "$@"; }
fi
# The command leads a session of its own; its number is what a time-out kills.
lead() { session sh -c 'echo $$ >"$0/pid"; exec "$@"' "$d" "$@" >"$d/o" 2>"$d/e"; }
if [ -n "$input" ]; then # the host writes stdin to this pipe later
  lead "$@" <"$d/$input"
else
  lead "$@"
fi
code=$?
i=0
until ended || [ $i -ge 43 ]; do
  # The outputs of a command without children end soon.
  if [ $i -lt 4 ]; then pause=0.005; else pause=0.02; fi
  sleep $pause 2>/dev/null || sleep 1
  i=$((i + 1))
done
show() { # the last part of an output; an empty one takes no processes
  for piece in "$d/$1".[0-9]*; do
    [ -s "$piece" ] || continue
    cat "$d/$1".[0-9]* | tail -c $limit
    break
  done
}
show o
show e >&2
if ended; then rm -rf "$d"; else : >"$d/left"; fi
