package alarms

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// Interval is how often the alarms are checked, also when no client requests them.
const Interval = 10 * time.Second

// Source returns the alarms that are active. It is called for every status and must not wait: slow
// checks run elsewhere and are cached. Since is filled in by Alarms, where it is zero.
type Source func() []api.Alarm

// urgent are the alarms under which instances do not start, or records may be lost. Sources may mark others.
var urgent = []string{
	api.AlarmDataDisk, api.AlarmStoreFull, api.AlarmRegistryDisk, api.AlarmRegistryAway, api.AlarmLicense,
	api.AlarmQueueGrows,
}

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

// Options configure Alarms. All fields are set, except WithEvent.
type Options struct {
	Disks   *Disks // checked by Run
	Queue   *Queue // checked by Run
	Sources []Source

	// WithEvent returns a writer whose commits carry an event as well; nil: no events are written.
	WithEvent func(w store.Writer, event func() farm.Event) store.Writer
}

// Alarms are the alarms of all sources, in their order.
type Alarms struct {
	db   record.DB
	opts Options

	mu    sync.Mutex
	since map[alarmKey]time.Time
}

type alarmKey struct{ name, subject string }

func keyOf(a api.Alarm) alarmKey { return alarmKey{a.Name, a.Subject} }

// New returns the alarms of the sources.
func New(db record.DB, o Options) *Alarms { return &Alarms{db: db, opts: o} }

// Active returns the active alarms.
func (a *Alarms) Active() []api.Alarm {
	var list []api.Alarm
	for _, source := range a.opts.Sources {
		list = append(list, source()...)
	}
	raised, ended := a.stamp(list, a.db.Now())
	for _, one := range raised {
		a.db.Log.Warn("alarm raised", "alarm", one.Name, "subject", one.Subject, "message", one.Message)
	}
	for key, since := range ended {
		a.db.Log.Info("alarm ended", "alarm", key.name, "subject", key.subject, "since", since)
	}
	return list
}

// stamp fills in Since and Urgent of every alarm, removes those that ended, and returns the new and the ended
// ones. An alarm that the leader has recorded began then, also when this process started later.
func (a *Alarms) stamp(list []api.Alarm, now time.Time) (raised []api.Alarm, ended map[alarmKey]time.Time) {
	recorded := a.recorded()
	a.mu.Lock()
	defer a.mu.Unlock()
	active := make(map[alarmKey]time.Time, len(list))
	for i := range list {
		key := keyOf(list[i])
		since, known := a.since[key]
		if !known {
			since = list[i].Since
		}
		if since.IsZero() {
			since = now
		}
		if written, ok := recorded[key]; ok && written.Since.Before(since) {
			since = written.Since
		}
		active[key], list[i].Since = since, since
		list[i].Urgent = list[i].Urgent || slices.Contains(urgent, list[i].Name)
		if !known {
			raised = append(raised, list[i])
		}
		delete(a.since, key)
	}
	ended, a.since = a.since, active
	return raised, ended
}

// Run checks disks and queue, and logs when alarms begin and end, until the context ends.
func (a *Alarms) Run(ctx context.Context) {
	tick := time.NewTicker(Interval)
	defer tick.Stop()
	for {
		a.opts.Disks.check(ctx)
		a.opts.Queue.sample(a.db.Now())
		a.Active()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
