package admission

import (
	"cmp"
	"sync"
	"time"

	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
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

// retryAfter is when a caller that reached a limit is asked to try again.
const retryAfter = 30 * time.Second

// Amounts are the usage of an instance, a request or a caller, indexed by the constants below.
type Amounts [5]int64

// What is counted. Pending instances and their sizes are without scripts; save requests are those that
// are pending or failed.
const (
	Instances = iota
	InstancesSize
	ScriptsSize
	Saves
	SavesSize
)

// What a caller can do that has reached a limit.
const (
	terminateSome = "terminate some, or try again later"
	failedGo      = "the oldest that failed are removed within a minute"
)

// checks are made before instances and save requests are created, in the order of Amounts.
var checks = [len(Amounts{})]struct {
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

// WithDefaults sets zero fields to their defaults.
func (l Limits) WithDefaults() Limits {
	return Limits{
		Waiting:         cmp.Or(l.Waiting, DefaultMaxWaiting),
		WaitingSize:     cmp.Or(l.WaitingSize, DefaultMaxWaitingSize),
		ScriptsSize:     cmp.Or(l.ScriptsSize, DefaultMaxScriptsSize),
		IdempotencyKeys: cmp.Or(l.IdempotencyKeys, DefaultMaxIdempotencyKeys),
	}
}

func (l Limits) waiting() int64     { return int64(l.Waiting) }
func (l Limits) waitingSize() int64 { return l.WaitingSize }
func (l Limits) scriptsSize() int64 { return l.ScriptsSize }

// storedBy returns the amounts of a caller in the store; of "" those of all callers.
func storedBy(tables *record.Tables, caller string) Amounts {
	waiting, scripts, saves, key := record.WaitingByCaller, record.ScriptsByCaller, record.SavesByCaller, caller
	if caller == "" {
		waiting, scripts, saves, key = record.WaitingOfAll, record.ScriptsOfAll, record.SavesOfAll, record.AllCallers
	}
	w := tables.Instances.Snapshot().Sum(waiting, key)
	s := tables.Scripts.Snapshot().Sum(scripts, key)
	v := tables.Saves.Snapshot().Sum(saves, key)
	return Amounts{int64(w[0]), int64(w[1]), int64(s[0]), int64(v[0]), int64(v[1])}
}

// Limiter enforces the callers' limits when instances and save requests are created. Stored amounts follow from the
// records, so that they are right after a restart and in every replica; requests that are being
// written are counted here.
type Limiter struct {
	limits Limits
	stored func(caller string) Amounts // "": of all callers

	mu      sync.Mutex         // guards the fields below
	writing map[string]Amounts // caller -> what the requests add that are being written; "": of all callers
}

// New returns the limiter of the records in a database.
func New(db record.DB, limits Limits) *Limiter {
	return newLimiter(limits, func(caller string) Amounts { return storedBy(db.Tables, caller) })
}

func newLimiter(limits Limits, stored func(caller string) Amounts) *Limiter {
	return &Limiter{limits: limits, stored: stored, writing: map[string]Amounts{}}
}

// Admit counts what a request adds until release is called, or refuses it.
func (l *Limiter) Admit(caller string, more Amounts) (release func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.checkLocked(caller, more); err != nil {
		return nil, err
	}
	l.countLocked(caller, more, 1)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.countLocked(caller, more, -1)
	}, nil
}

// Check refuses what Admit would refuse.
func (l *Limiter) Check(caller string, more Amounts) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.checkLocked(caller, more)
}

// CheckInstanceSize refuses a change by which the pending instances of a caller grow by too many bytes.
func (l *Limiter) CheckInstanceSize(caller string, bytes int) error {
	return l.Check(caller, Amounts{InstancesSize: int64(bytes)})
}

// AdmitSave is Admit for one save request of some bytes.
func (l *Limiter) AdmitSave(caller string, bytes int) (release func(), err error) {
	return l.Admit(caller, Amounts{Saves: 1, SavesSize: int64(bytes)})
}

func (l *Limiter) checkLocked(caller string, more Amounts) error {
	mine, all := l.hasLocked(caller), l.hasLocked("")
	for i, one := range checks {
		limit := one.max(l.limits)
		switch {
		case more[i] <= 0:
		case caller != "" && mine[i]+more[i] > farm.CallerShare(limit):
			return farm.Busy(retryAfter,
				"You have %d %s and ask for %d more; one caller may have a quarter of the setting %s (%d): %s",
				mine[i], one.what, more[i], one.setting, limit, one.remedy)
		case all[i]+more[i] > limit:
			return farm.Busy(retryAfter, "There are %d %s, and %d more are requested; "+
				"the limit is %d (setting %s): try again later", all[i], one.what, more[i], limit, one.setting)
		}
	}
	return nil
}

// hasLocked returns the amounts of a caller, including those being written.
func (l *Limiter) hasLocked(caller string) Amounts {
	has := l.stored(caller)
	for i, n := range l.writing[caller] {
		has[i] += n
	}
	return has
}

func (l *Limiter) countLocked(caller string, more Amounts, sign int64) {
	for who := range map[string]bool{caller: true, "": true} {
		sum := l.writing[who]
		for i := range sum {
			sum[i] += sign * more[i]
		}
		if l.writing[who] = sum; sum == (Amounts{}) {
			delete(l.writing, who)
		}
	}
}
