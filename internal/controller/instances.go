package controller

import (
	"context"
	"iter"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/buildyard/buildyard/internal/controller/admission"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// InstanceView is an instance as clients see it.
type InstanceView struct {
	*farm.Instance
	Encoded []byte // the renderer's output for the record; nil without a renderer
	Message string // as clients see it: the record's own, or the computed one
}

func listed(row store.Row[farm.Instance]) InstanceView {
	return InstanceView{Instance: row.Value(), Encoded: row.Encoded(), Message: row.Value().Message}
}

// Page is the part of the instances that a list shows, in the order of their ids: instances that
// are created or removed between two requests move nothing to another page.
type Page struct {
	ExternalID string                  // "": every one
	After      string                  // an id, which need not exist any longer; "": from the first
	Limit      int                     // 0: no limit
	Match      func(InstanceView) bool // which of them; nil: all
}

// Instances lists instances. The message of a pending one is its reason, and that of one being
// saved the stage of the save.
func (c *Controller) Instances(p Page) []InstanceView {
	view := c.tables.Instances.Snapshot()
	rows, room := view.Rows(p.After), view.Len()
	if p.ExternalID != "" {
		rows, room = view.RowsWhere(record.ByExternalID, p.ExternalID, p.After), 0
	}
	if p.Limit > 0 {
		room = min(room, p.Limit)
	}
	if p.Match != nil {
		return c.matching(rows, p)
	}
	list := make([]InstanceView, 0, room)
	for row := range rows {
		list = append(list, listed(row))
		if len(list) == p.Limit {
			break
		}
	}
	c.explain(list)
	return list
}

// InstanceList is a part of the instances as they were at one moment. It reads them from the
// table's snapshot and not from a copy, so that a client that reads a long response slowly uses
// little memory.
type InstanceList struct {
	rows     iter.Seq[store.Row[farm.Instance]]
	messages []messageRun   // of all rows, in their order
	list     []InstanceView // instead, of a list that was filtered
}

// messageRun is a number of successive rows with the same message.
type messageRun struct {
	text string // "": the message of the record
	rows int
}

// ListInstances is Instances for a list that may be long. It calls each one time for every
// instance, in their order: a reader that needs sums of the list need not read all of it a second
// time.
func (c *Controller) ListInstances(p Page, each func(InstanceView)) *InstanceList {
	if p.Match != nil {
		l := &InstanceList{list: c.Instances(p)}
		for _, one := range l.list {
			each(one)
		}
		return l
	}
	view := c.tables.Instances.Snapshot()
	l := &InstanceList{rows: view.Rows(p.After)}
	if p.ExternalID != "" {
		l.rows = view.RowsWhere(record.ByExternalID, p.ExternalID, p.After)
	}

	batch, count := make([]InstanceView, 0, explainBatch), 0
	for row := range l.rows {
		batch = append(batch, listed(row))
		if count++; len(batch) == explainBatch {
			c.explain(batch)
			l.add(batch, each)
			batch = batch[:0]
		}
		if count == p.Limit {
			break
		}
	}
	c.explain(batch)
	l.add(batch, each)
	return l
}

// add counts the messages of the next rows and passes them to each.
func (l *InstanceList) add(batch []InstanceView, each func(InstanceView)) {
	for _, one := range batch {
		each(one)
		text := one.Message
		if text == one.Instance.Message {
			text = ""
		}
		if last := len(l.messages) - 1; last >= 0 && l.messages[last].text == text {
			l.messages[last].rows++
		} else {
			l.messages = append(l.messages, messageRun{text, 1})
		}
	}
}

// All yields the instances, the same ones at each call.
func (l *InstanceList) All() iter.Seq[InstanceView] {
	if l.rows == nil {
		return slices.Values(l.list)
	}
	return func(yield func(InstanceView) bool) {
		run, left := -1, 0
		for row := range l.rows {
			if left == 0 {
				if run++; run == len(l.messages) {
					return
				}
				left = l.messages[run].rows
			}
			left--
			one := listed(row)
			if text := l.messages[run].text; text != "" {
				one.Message = text
			}
			if !yield(one) {
				return
			}
		}
	}
}

// NewestInstances returns a part of the instances, the newest first, and the number of instances in
// each state. It reads only the instances of the part.
func (c *Controller) NewestInstances(skip, limit int) (part []InstanceView, states map[farm.InstanceState]int) {
	view := c.tables.Instances.Snapshot()
	states = make(map[farm.InstanceState]int, len(farm.InstanceStates))
	for _, s := range farm.InstanceStates {
		states[s] = view.Sum(record.CountByState, string(s))[0]
	}
	for row := range view.RowsBy(record.ByAge, skip) {
		if len(part) == limit {
			break
		}
		part = append(part, listed(row))
	}
	c.explain(part)
	return part, states
}

// matching returns the instances that a page selects, which depends on what clients see of them.
func (c *Controller) matching(rows iter.Seq[store.Row[farm.Instance]], p Page) []InstanceView {
	list, batch := []InstanceView{}, make([]InstanceView, 0, explainBatch)
	sift := func() (full bool) {
		c.explain(batch)
		for _, l := range batch {
			if p.Match(l) {
				list = append(list, l)
			}
			if p.Limit > 0 && len(list) == p.Limit {
				return true
			}
		}
		batch = batch[:0]
		return false
	}
	for row := range rows {
		if batch = append(batch, listed(row)); len(batch) == explainBatch && sift() {
			return list
		}
	}
	sift()
	return list
}

// InstancesETag returns a tag of the state of the records in the next list of instances, or of a
// later one. As long as the tag is the same, so is the list except for the messages that are not
// stored.
func (c *Controller) InstancesETag() string {
	return strconv.FormatUint(c.tables.Instances.Snapshot().Serial(), 36) + "." +
		strconv.FormatUint(c.tables.Saves.Snapshot().Serial(), 36)
}

// Instance returns one instance; farm.CodeNotFound when there is none.
func (c *Controller) Instance(ctx context.Context, id string) (InstanceView, error) {
	inst, _, err := record.Lookup(ctx, c.tables.Instances, id)
	if err != nil {
		return InstanceView{}, err
	}
	list := []InstanceView{{Instance: inst, Message: inst.Message}}
	if row, ok := c.tables.Instances.Snapshot().Row(id); ok {
		list[0] = listed(row)
	}
	c.explain(list)
	return list[0], nil
}

// explainBatch is how many reasons are requested at a time: the placer waits during each batch.
const explainBatch = 256

// explain sets the messages that are not in the records; it skips nil instances.
func (c *Controller) explain(list []InstanceView) {
	for batch := range slices.Chunk(list, explainBatch) {
		waits := false
		for i, l := range batch {
			if l.Instance == nil {
				continue
			}
			waits = waits || l.Waiting()
			if l.State == farm.Pushing && l.Message == "" {
				batch[i].Message = c.stageOf(l.Instance)
			}
		}
		if waits {
			c.explainPending(batch)
		}
	}
}

// explainPending sets the messages of pending instances.
func (c *Controller) explainPending(batch []InstanceView) {
	list := make([]*farm.Instance, len(batch))
	for i, l := range batch {
		list[i] = l.Instance
	}
	for i, reason := range c.placer.WaitReasons(list) {
		if reason != "" {
			batch[i].Message = reason
		}
	}
}

// InstanceUpdate is a client's change of an instance; nil fields stay.
type InstanceUpdate struct {
	Name       *string
	ExternalID *string
	Metadata   map[string]any
	TTL        *time.Duration // from now on; 0 removes the limit
}

// UpdateInstance changes the names and metadata of an instance and restarts its time to live.
func (c *Controller) UpdateInstance(ctx context.Context, id string, up InstanceUpdate) error {
	return c.modify(ctx, c.store, id, func(inst *farm.Instance) (*farm.Instance, error) {
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
		if more := record.InstanceSize(n) - record.InstanceSize(inst); inst.Waiting() {
			demand := admission.Amounts{admission.InstancesSize: int64(more)}
			if err := c.admission.Check(inst.Caller, demand); err != nil {
				return nil, err
			}
		}
		n.Updated = c.now()
		if up.TTL != nil {
			n.SetTTL(*up.TTL, n.Updated)
		}
		return n, nil
	})
}

// modify reads, changes and writes one instance, and retries while another writer is faster. If
// change returns its argument, nothing is written. A save that the change removes from the instance
// ends with it.
func (c *Controller) modify(
	ctx context.Context, w store.Writer, id string, change func(*farm.Instance) (*farm.Instance, error),
) error {
	if _, _, err := record.Lookup(ctx, c.tables.Instances, id); err != nil {
		return err
	}
	var had *farm.Task
	now, err := store.Update(ctx, w, c.tables.Instances, id, func(inst *farm.Instance) (*farm.Instance, error) {
		if inst == nil {
			return nil, farm.NotFound()
		}
		had = inst.Task
		return change(inst)
	})
	if err != nil || had == nil || had.Kind != farm.TaskSave || now.WorksOn(had.ID) {
		return err
	}
	if err := c.endSave(ctx, w, had.ID, now); err != nil { // the reconciler tries it again
		c.log.WarnContext(ctx, "ending the save of a terminated instance failed; retrying", "request", had.ID, "error",
			err)
	}
	return nil
}

// Terminate requests the end of an instance, durably. It has precedence over everything in
// progress; a second call changes nothing.
func (c *Controller) Terminate(ctx context.Context, id string) error {
	var was *farm.Instance
	asked := c.Events.With(c.store, func() farm.Event {
		return farm.Event{
			Name: farm.EventTerminateVM, InstanceID: id, Extra: map[string]any{"instance_state": was.State},
		}
	})
	return c.modify(ctx, asked, id, func(inst *farm.Instance) (*farm.Instance, error) {
		was = inst
		return inst.AfterTerminate(c.now()), nil
	})
}

// end is Terminate without an event, for an instance that no client knows.
func (c *Controller) end(ctx context.Context, w store.Writer, id string) error {
	return c.modify(ctx, w, id, func(inst *farm.Instance) (*farm.Instance, error) {
		return inst.AfterTerminate(c.now()), nil
	})
}
