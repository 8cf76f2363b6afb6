# Begins the first process of a page's namespaces: loopback comes up, and the directories of the page
# and changes of those that packages and services use are in memory. Runs the script that it is given.
set -e
mount --make-rprivate /
mount -t proc proc /proc
ip link set lo up
mount -t tmpfs tmpfs "$DOCS_TEST/layers"
for d in etc opt usr/local var; do
  layer=$DOCS_TEST/layers/${d/\//-}
  mkdir "$layer" "$layer/upper" "$layer/work"
  mount -t overlay overlay -o "lowerdir=/$d,upperdir=$layer/upper,workdir=$layer/work" "/$d"
done
for d in page home cloud; do # a disk that is nearly full is not the page's fault
  mkdir -p "$DOCS_TEST/$d"
  mount -t tmpfs tmpfs "$DOCS_TEST/$d"
done
cd "$DOCS_TEST/page"
rm -rf /etc/buildyard /var/cache/buildyard /var/lib/buildyard /var/log/buildyard
bash "$1"
