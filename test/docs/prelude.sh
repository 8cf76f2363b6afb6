# What every page begins with, see doc.go.
set -eo pipefail

docs_test_begin() {
  echo "begin $1 $EPOCHREALTIME" >>"$DOCS_TEST/marks"
  exec >"$DOCS_TEST/$1.out" 2>&1 </dev/null
}

docs_test_end() {
  echo "end $1 $EPOCHREALTIME" >>"$DOCS_TEST/marks"
}

# wait_for COMMAND...: repeats a command until it succeeds, for at most a minute.
wait_for() {
  local n
  for ((n = 0; n < 600; n++)); do
    if "$@" >/dev/null 2>&1; then return 0; fi
    sleep 0.1
  done
  "$@"
}

# start_cloud: starts a controller with a registry, without authentication and at the default ports,
# and a node with simulated VMs; pushes base:v1.
start_cloud() {
  local dir=$DOCS_TEST/cloud
  mkdir -p "$dir"
  SVC_DATA_DIR=$dir/controller SVC_REGISTRY_BASE_PATH=$dir/registry buildyard up >"$dir/up.log" 2>&1 &
  wait_for curl -fs http://127.0.0.1:8090/readyz
  SVC_DATA_DIR=$dir/controller buildyard node token |
    buildnode join http://127.0.0.1:8090 --token-file - --data-dir "$dir/node" --capacity 4
  buildnode run --driver sim --data-dir "$dir/node" >"$dir/node.log" 2>&1 &
  buildnode vm create --name base --disk-size 1G --data-dir "$dir/node"
  buildnode registry push base -t v1 -r http://127.0.0.1:8089 --data-dir "$dir/node"
  wait_for docs_test_active
}

docs_test_active() { buildyard node list -o json | grep -q '"Active"'; }
