package instances

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// Options is what Instances need of other parts. All fields are set.
type Options struct {
	Events Events
	// WaitReasons returns why instances wait for a node; "" where that is not known. Instances that
	// are nil or do not wait are skipped.
	WaitReasons func(list []*farm.Instance) []string
	// ClaimDevice returns the change that assigns the USB device of a restart to an instance, and notes
	// the device in the options.
	ClaimDevice func(inst *farm.Instance, o *farm.RestartOptions) (store.Change, error)
	// CheckSize refuses a change by which the pending instances of a caller grow too much.
	CheckSize func(caller string, bytes int) error
	// EndSave ends a save request on which its instance, nil when it is removed, no longer works.
	EndSave func(ctx context.Context, w store.Writer, request string, inst *farm.Instance) error
}

// Events records events.
type Events interface {
	// With returns a writer whose commits have an event as well.
	With(w store.Writer, event func() farm.Event) store.Writer
}

// Instances are the instances of a cloud.
type Instances struct {
	db      record.DB
	o       Options
	watches watches
}

// New returns the instances in a database.
func New(db record.DB, o Options) *Instances { return &Instances{db: db, o: o} }

// Update is a client's change of an instance; nil fields stay.
type Update struct {
	Name       *string
	ExternalID *string
	Metadata   map[string]any
	TTL        *time.Duration // from now on; 0 removes the limit
}

// Update changes the names and metadata of an instance and restarts its time to live.
func (s *Instances) Update(ctx context.Context, id string, up Update) error {
	return s.modifyShown(ctx, s.db.Store, id, func(inst *farm.Instance) (*farm.Instance, error) {
		n := inst.Clone()
		if up.Name != nil {
			n.Name = *up.Name
		}
		if up.ExternalID != nil {
			n.ExternalID = *up.ExternalID
		}
		if up.Metadata != nil {
			n.Metadata = maps.Clone(up.Metadata)
		}
		if more := record.InstanceSize(n) - record.InstanceSize(inst); inst.AwaitsPlacement() {
			if err := s.o.CheckSize(inst.Caller, more); err != nil {
				return nil, err
			}
		}
		n.Updated = s.db.Now()
		if up.TTL != nil {
			n.SetTTL(*up.TTL, n.Updated)
		}
		return n, nil
	})
}

// Modify reads, changes and writes one instance, and retries while another writer is faster. If
// change returns its argument, nothing is written. A save that the change removes from the instance
// ends with it.
func (s *Instances) Modify(
	ctx context.Context, w store.Writer, id string, change func(*farm.Instance) (*farm.Instance, error),
) error {
	if _, _, err := record.Lookup(ctx, s.db.Tables.Instances, id); err != nil {
		return err
	}
	var had *farm.NodeTask
	now, err := store.Update(ctx, w, s.db.Tables.Instances, id, func(inst *farm.Instance) (*farm.Instance, error) {
		if inst == nil {
			return nil, farm.NotFound()
		}
		had = inst.Task
		return change(inst)
	})
	if err != nil || had == nil || had.Kind != farm.TaskSave || now.WorksOn(had.ID) {
		return err
	}
	if err := s.o.EndSave(ctx, w, had.ID, now); err != nil { // the reconciler tries it again
		s.db.Log.WarnContext(ctx, "ending the save of a terminated instance failed; retrying", "request", had.ID,
			"error", err)
	}
	return nil
}

// Terminate requests the end of an instance, durably. It has precedence over everything in
// progress; a second call changes nothing.
func (s *Instances) Terminate(ctx context.Context, id string) error {
	var was *farm.Instance
	w := s.o.Events.With(s.db.Store, func() farm.Event {
		return farm.Event{
			Name: farm.EventTerminateVM, InstanceID: id, Extra: map[string]any{"instance_state": was.State},
		}
	})
	return s.modifyShown(ctx, w, id, func(inst *farm.Instance) (*farm.Instance, error) {
		was = inst
		return inst.AfterTerminate(s.db.Now()), nil
	})
}

// modifyShown is Modify for a request of a client: a standby is not found.
func (s *Instances) modifyShown(
	ctx context.Context, w store.Writer, id string, change func(*farm.Instance) (*farm.Instance, error),
) error {
	if _, err := record.LookupInstance(ctx, s.db, id); err != nil {
		return err
	}
	return s.Modify(ctx, w, id, func(inst *farm.Instance) (*farm.Instance, error) {
		if inst.IsStandby() {
			return nil, farm.NotFound()
		}
		return change(inst)
	})
}

// Discard is Terminate without an event, for an instance that no client knows.
func (s *Instances) Discard(ctx context.Context, w store.Writer, id string) error {
	return s.Modify(ctx, w, id, func(inst *farm.Instance) (*farm.Instance, error) {
		return inst.AfterTerminate(s.db.Now()), nil
	})
}

// DiscardClaimed is Discard for an instance that has claimed a standby. A record without that claim belongs to the
// pool or to another start, and stays: farm.CodeNotFound.
func (s *Instances) DiscardClaimed(ctx context.Context, w store.Writer, id, claim string) error {
	return s.Modify(ctx, w, id, func(inst *farm.Instance) (*farm.Instance, error) {
		if inst.Claim != claim {
			return nil, farm.NotFound()
		}
		return inst.AfterTerminate(s.db.Now()), nil
	})
}

// Latest reads an instance from the store itself: its state decides whether a task is accepted, and
// another replica may have changed it.
func (s *Instances) Latest(ctx context.Context, id string) (*farm.Instance, error) {
	if !record.ValidID(id) {
		return nil, farm.NotFound()
	}
	inst, _, err := s.db.Tables.Instances.GetLinearizable(ctx, id)
	if err == nil && (inst == nil || inst.IsStandby()) {
		return nil, farm.NotFound()
	}
	return inst, err
}

// BeginTask assigns a task to an instance, in one transaction with the changes in with.
func (s *Instances) BeginTask(
	ctx context.Context, id string, event farm.InstanceEvent, task *farm.NodeTask, with ...store.Change,
) error {
	for range record.TxnAttempts {
		inst, rev, err := s.db.Tables.Instances.GetLinearizable(ctx, id)
		if err != nil {
			return err
		}
		if inst == nil || inst.IsStandby() {
			return farm.NotFound()
		}
		if err := inst.CheckTask(event); err != nil {
			return err
		}
		n := inst.Clone()
		to, _ := farm.NextInstanceState(inst.State, event)
		n.EnterState(to, s.db.Now())
		n.Task, n.Message, n.Updated = task, "", s.db.Now()
		changes := append([]store.Change{store.Put(s.db.Tables.Instances, id, n, store.IfRev(rev))}, with...)
		if err = s.db.Store.Commit(ctx, changes...); !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
	return store.ErrConflict
}
