package controller

import (
	"sync"
	"time"

	"github.com/buildyard/buildyard/internal/controller/placement"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// Limits bounds what all callers together may have in the store; one caller may have a quarter of
// each. Zero fields have the defaults.
type Limits struct {
	Waiting         int   // pending instances, and as many save requests that are not done
	WaitingSize     int64 // bytes of the records of either, without their scripts
	ScriptsSize     int64 // bytes of the startup scripts of all instances
	IdempotencyKeys int   // stored idempotency keys
}

// The default limits.
const (
	DefaultMaxWaiting         = 40_000
	DefaultMaxWaitingSize     = 256 << 20
	DefaultMaxScriptsSize     = 256 << 20
	DefaultMaxIdempotencyKeys = 80_000
)

// bounds limits stored data for which no setting exists. Zero fields have the defaults; tests make
// them smaller.
type bounds struct {
	saves   int // save requests
	output  int // bytes of output of all save requests
	past    int // records of the history
	answers int // bytes of the stored responses of idempotency records
	events  int // including those that wait for their delivery
}

// limitRetry is when a caller that reached a limit is asked to try again.
const limitRetry = 30 * time.Second

// amounts are the usage of an instance, a request or a caller, in the order of creationLimits.
type amounts [5]int64

// The limits on save requests in creationLimits.
const (
	limitSaves     = 3
	limitSavesSize = 4
)

// What a caller can do that has reached a limit.
const (
	terminateSome = "terminate some, or try again later"
	failedGo      = "the oldest that failed are removed within a minute"
)

// creationLimits are checked before instances and save requests are created.
var creationLimits = [len(amounts{})]struct {
	what    string // in the plural
	setting string
	max     func(Limits) int64
	remedy  string
}{
	{"instances that wait for a node", "SVC_MAX_WAITING", Limits.waiting, terminateSome},
	{"bytes of instances that wait for a node", "SVC_MAX_WAITING_SIZE", Limits.waitingSize, terminateSome},
	{"bytes of startup scripts", "SVC_MAX_SCRIPTS_SIZE", Limits.scriptsSize, terminateSome},
	{"save requests that are pending or failed", "SVC_MAX_WAITING", Limits.waiting, failedGo},
	{"bytes of save requests that are pending or failed", "SVC_MAX_WAITING_SIZE", Limits.waitingSize, failedGo},
}

func (l Limits) waiting() int64     { return int64(l.Waiting) }
func (l Limits) waitingSize() int64 { return l.WaitingSize }
func (l Limits) scriptsSize() int64 { return l.ScriptsSize }

// demandOf returns the amounts of drafts and their script. A draft with a node does not count as
// pending.
func demandOf(drafts []placement.Draft, script []store.Change) (more amounts) {
	for _, d := range drafts {
		if d.Placed == nil {
			more[0]++
			more[1] += int64(record.InstanceSize(d.Asked))
		}
	}
	for _, change := range script {
		if s, ok := change.Value().(*record.Script); ok {
			more[2] += int64(s.Size)
		}
	}
	return more
}

// storedBy returns the amounts of a caller in the store; of "" those of all callers.
func (c *Controller) storedBy(caller string) amounts {
	waiting, scripts, saves, key := record.WaitingByCaller, record.ScriptsByCaller, record.SavesByCaller, caller
	if caller == "" {
		waiting, scripts, saves, key = record.WaitingOfAll, record.ScriptsOfAll, record.SavesOfAll, record.AllCallers
	}
	w := c.tables.Instances.Snapshot().Sum(waiting, key)
	s := c.tables.Scripts.Snapshot().Sum(scripts, key)
	v := c.tables.Saves.Snapshot().Sum(saves, key)
	return amounts{int64(w[0]), int64(w[1]), int64(s[0]), int64(v[0]), int64(v[1])}
}

// admission enforces the callers' limits when instances are created. Stored amounts follow from the
// records, so that they are right after a restart and in every replica; requests that are being
// written are counted here.
type admission struct {
	limits Limits
	stored func(caller string) amounts // "": of all callers

	mu      sync.Mutex         // guards what follows
	writing map[string]amounts // caller -> what the requests add that are being written; "": of all callers
}

// admit counts what a request adds until release is called, or refuses it.
func (a *admission) admit(caller string, more amounts) (release func(), err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.checkLocked(caller, more); err != nil {
		return nil, err
	}
	a.countLocked(caller, more, 1)
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.countLocked(caller, more, -1)
	}, nil
}

// check refuses what admit would refuse.
func (a *admission) check(caller string, more amounts) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.checkLocked(caller, more)
}

func (a *admission) checkLocked(caller string, more amounts) error {
	mine, all := a.hasLocked(caller), a.hasLocked("")
	for i, l := range creationLimits {
		limit := l.max(a.limits)
		switch {
		case more[i] <= 0:
		case caller != "" && mine[i]+more[i] > farm.CallerShare(limit):
			return farm.Busy(limitRetry,
				"You have %d %s and ask for %d more; one caller may have a quarter of the setting %s (%d): %s",
				mine[i], l.what, more[i], l.setting, limit, l.remedy)
		case all[i]+more[i] > limit:
			return farm.Busy(limitRetry, "There are %d %s, and %d more are asked for; "+
				"the limit is %d (setting %s): try again later", all[i], l.what, more[i], limit, l.setting)
		}
	}
	return nil
}

// hasLocked returns the amounts of a caller, including those being written.
func (a *admission) hasLocked(caller string) amounts {
	has := a.stored(caller)
	for i, n := range a.writing[caller] {
		has[i] += n
	}
	return has
}

func (a *admission) countLocked(caller string, more amounts, sign int64) {
	for who := range map[string]bool{caller: true, "": true} {
		sum := a.writing[who]
		for i := range sum {
			sum[i] += sign * more[i]
		}
		if a.writing[who] = sum; sum == (amounts{}) {
			delete(a.writing, who)
		}
	}
}
