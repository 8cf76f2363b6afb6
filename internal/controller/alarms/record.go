package alarms

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

const (
	// settingID is the ID of the record with the alarms whose begin is in the event log.
	settingID   = "alarms"
	maxRecorded = 200 // alarms in that record
	maxText     = 1024
)

// recordedAlarm is an alarm whose begin is in the event log.
type recordedAlarm struct {
	Name    string    `json:"name"`
	Subject string    `json:"subject,omitempty"`
	Since   time.Time `json:"since"`
	Message string    `json:"message"`
}

// recorded returns the recorded alarms. A record that cannot be read counts as none.
func (a *Alarms) recorded() map[alarmKey]recordedAlarm {
	setting, _, ok := a.db.Tables.Settings.Get(settingID)
	if !ok {
		return nil
	}
	var list []recordedAlarm
	if json.Unmarshal([]byte(setting.Value), &list) != nil {
		return nil
	}
	known := make(map[alarmKey]recordedAlarm, len(list))
	for _, one := range list {
		known[alarmKey{one.Name, one.Subject}] = one
	}
	return known
}

// Record writes an event when an alarm begins and when it has ended, as long as the leader term lasts.
// Events and record are one transaction, so that the next leader writes neither again. An alarm has
// ended when two checks in a row do not find it: a process that has just started has not checked yet.
func (a *Alarms) Record(ctx context.Context, term *record.Term) {
	tick := time.NewTicker(Interval)
	defer tick.Stop()
	missed := map[alarmKey]bool{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		next, events := changes(a.recorded(), a.Active(), missed)
		if len(events) == 0 {
			continue
		}
		if err := a.write(ctx, term, next, events); err != nil && ctx.Err() == nil {
			a.db.Log.WarnContext(ctx, "recording alarms failed", "error", err)
		}
	}
}

// changes returns the alarms to record next, and the events. missed are the recorded alarms that the
// last check did not find; it is updated.
func changes(
	known map[alarmKey]recordedAlarm, active []api.Alarm, missed map[alarmKey]bool,
) (next []recordedAlarm, events []farm.Event) {
	found := map[alarmKey]bool{}
	for _, one := range active {
		key := keyOf(one)
		if found[key] || len(next) == maxRecorded {
			continue
		}
		found[key] = true
		was, ok := known[key]
		if !ok {
			was = recordedAlarm{one.Name, one.Subject, one.Since, farm.Clip(one.Message, maxText)}
			events = append(events, eventOf(farm.EventAlarmStarted, was, one))
		}
		next = append(next, was)
		delete(missed, key)
	}
	for key, was := range known {
		switch {
		case found[key]:
		case missed[key]:
			events = append(events, eventOf(farm.EventAlarmEnded, was, api.Alarm{}))
			delete(missed, key)
		default:
			missed[key] = true
			next = append(next, was)
		}
	}
	return next, events
}

// eventOf returns the event of an alarm; now has what only an active one has.
func eventOf(name farm.EventName, of recordedAlarm, now api.Alarm) farm.Event {
	extra := map[string]any{
		"alarm": of.Name, "subject": of.Subject, "since": of.Since.Unix(), "message": of.Message,
	}
	if now.Action != "" {
		extra["action"] = farm.Clip(now.Action, maxText)
	}
	if now.Count > 0 {
		extra["count"] = now.Count
	}
	return farm.Event{Name: name, Extra: extra}
}

// write records the alarms with their events.
func (a *Alarms) write(ctx context.Context, term *record.Term, next []recordedAlarm, events []farm.Event) error {
	slices.SortFunc(next, func(x, y recordedAlarm) int { return x.Since.Compare(y.Since) })
	value, err := json.Marshal(next)
	if err != nil {
		return err
	}
	w := store.Writer(term)
	for _, event := range events {
		if a.opts.WithEvent != nil {
			w = a.opts.WithEvent(w, func() farm.Event { return event })
		}
	}
	return w.Commit(ctx, store.Put(a.db.Tables.Settings, settingID, &record.Setting{Value: string(value)}, store.Any))
}
