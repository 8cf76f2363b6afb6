package etcd

import (
	"errors"
	"log/slog"
	"sync"
	"time"
)

// deniedCall is a maintenance call that an etcd with authentication permits to its root role only.
type deniedCall string

// The maintenance calls of a controller.
const (
	callCompact    deniedCall = "compact"
	callDefragment deniedCall = "defragment"
	callDisarm     deniedCall = "disarm the alarm"
)

// remedies is what the operator of the cluster has to do instead.
var remedies = map[deniedCall]string{
	callCompact: "start the members with --auto-compaction-mode=periodic --auto-compaction-retention=5m",
	callDefragment: "the database is full: run \"etcdctl compact\", \"etcdctl defrag\" and \"etcdctl alarm disarm\" " +
		"as etcd's root",
	callDisarm: "the database was full: run \"etcdctl alarm disarm\" as etcd's root",
}

// errDeniedCall is the failure of a maintenance call that was denied and logged.
var errDeniedCall = errors.New("etcd permits this maintenance to its root role only")

// deniedLogInterval is the pause between two lines about the same call.
const deniedLogInterval = time.Hour

// deniedCalls logs calls that etcd refuses for lack of rights, each with its remedy and not too often.
type deniedCalls struct {
	mu     sync.Mutex
	logged map[deniedCall]time.Time
}

func (d *deniedCalls) log(to *slog.Logger, call deniedCall) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if last, seen := d.logged[call]; seen && time.Since(last) < deniedLogInterval {
		return
	}
	if d.logged == nil {
		d.logged = map[deniedCall]time.Time{}
	}
	d.logged[call] = time.Now()
	to.Warn("etcd permits this maintenance to its root role only", "call", string(call), "remedy", remedies[call])
}
