package alarms

import (
	"context"
	"sync"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/record"
)

// Interval is how often the alarms are checked, also when no client requests them.
const Interval = 10 * time.Second

// Source returns the alarms that are active. It is called for every status and must not wait: slow
// checks run elsewhere and are cached. Since is filled in by Alarms.
type Source func() []api.Alarm

// FromMessage returns the source of one alarm, which is active as long as message returns a text.
func FromMessage(name string, message func() string, action string) Source {
	return func() []api.Alarm {
		text := message()
		if text == "" {
			return nil
		}
		return []api.Alarm{{Name: name, Message: text, Action: action}}
	}
}

// Alarms are the alarms of all sources.
type Alarms struct {
	db      record.DB
	disks   *Disks
	sources []Source

	mu    sync.Mutex
	since map[alarmKey]time.Time
}

type alarmKey struct{ name, subject string }

// New returns the alarms of sources, in their order. disks is checked by Run.
func New(db record.DB, disks *Disks, sources ...Source) *Alarms {
	return &Alarms{db: db, disks: disks, sources: sources}
}

// Active returns the active alarms.
func (a *Alarms) Active() []api.Alarm {
	var list []api.Alarm
	for _, source := range a.sources {
		list = append(list, source()...)
	}
	for _, one := range a.stamp(list, a.db.Now()) {
		a.db.Log.Warn("alarm raised", "alarm", one.Name, "subject", one.Subject, "message", one.Message)
	}
	return list
}

// stamp fills in Since of every alarm, removes those that ended, and returns the new ones.
func (a *Alarms) stamp(list []api.Alarm, now time.Time) (raised []api.Alarm) {
	a.mu.Lock()
	defer a.mu.Unlock()
	active := make(map[alarmKey]time.Time, len(list))
	for i := range list {
		key := alarmKey{list[i].Name, list[i].Subject}
		since, known := a.since[key]
		if !known {
			since = now
		}
		active[key], list[i].Since = since, since
		if !known {
			raised = append(raised, list[i])
		}
	}
	a.since = active
	return raised
}

// Run checks the disks and logs when alarms begin, until the context ends.
func (a *Alarms) Run(ctx context.Context) {
	tick := time.NewTicker(Interval)
	defer tick.Stop()
	for {
		a.disks.check(ctx)
		a.Active()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
