package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/url"
	"time"

	"github.com/buildyard/buildyard/api"
)

// ChangeType is the type of a Change.
type ChangeType string

// The types of changes.
const (
	ChangeSet    ChangeType = "set"    // Instance is the current state
	ChangeGone   ChangeType = "gone"   // the instance is no longer in the list
	ChangeSynced ChangeType = "synced" // every present instance was reported; comes again after an interruption
)

// Change is one change in a watch.
type Change struct {
	Type       ChangeType       `json:"type"`
	InstanceID string           `json:"instance_id,omitempty"` // of the changed instance
	Instance   api.InstanceItem `json:"instance,omitzero"`     // of a ChangeSet
}

// InstanceWatch configures a watch of instances.
type InstanceWatch struct {
	// OnInterrupt is called when the stream broke, before it is resumed; nil: not called.
	OnInterrupt func(err error)
}

// maxSilence is the read timeout of a watch: the controller sends a line every 15 s.
const maxSilence = 45 * time.Second

// WatchInstances returns every present instance, a ChangeSynced, and then all changes of instances, until ctx ends, the
// loop is left or an error is returned. A stream that breaks is resumed: every present instance is reported
// again, and those removed since then are reported as gone. It returns an error if the first connection fails.
func (c *Controller) WatchInstances(ctx context.Context, o InstanceWatch) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		w := watch{c: c, known: map[string]bool{}, yield: yield}
		if err := again(ctx, o.OnInterrupt,
			func() (bool, error) { err := w.follow(ctx); return w.synced, err }); err != nil {
			yield(Change{}, err)
		}
	}
}

// watch is a watch over several streams.
type watch struct {
	c      *Controller
	known  map[string]bool // instances that were reported and are not gone
	yield  func(Change, error) bool
	synced bool // one stream has reported every present instance
	left   bool // the loop was left
}

// follow reads one stream to its end.
func (w *watch) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ask := get(pathVM+"/watch", url.Values{})
	resp, err := w.c.open(ctx, ask)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	silence := time.AfterFunc(maxSilence, func() { cancel(fmt.Errorf("nothing received for %s", maxSilence)) })
	defer silence.Stop()
	lines := linesOf(resp.Body)
	present := map[string]bool{}
	for lines.Scan() {
		silence.Reset(maxSilence)
		var change Change
		if err := json.Unmarshal(lines.Bytes(), &change); err != nil {
			return fmt.Errorf("watch: invalid line %.100q: %w", lines.Bytes(), err)
		}
		if w.take(change, &present); w.left {
			return errLeft
		}
	}
	err = lines.Err()
	switch {
	case errors.Is(err, bufio.ErrTooLong):
		return fmt.Errorf("watch: %w", err)
	case context.Cause(ctx) != nil:
		err = context.Cause(ctx)
	case err == nil:
		err = io.ErrUnexpectedEOF
	}
	return w.c.unreachable(ask, fmt.Errorf("watch interrupted: %w", err))
}

// take reports a change. Instances that are present in this stream are recorded until it is synced: an instance
// that was known before and is not among them is gone.
func (w *watch) take(change Change, present *map[string]bool) {
	switch change.Type {
	case ChangeSet:
		change.InstanceID = change.Instance.InstanceID
		w.known[change.InstanceID] = true
		if *present != nil {
			(*present)[change.InstanceID] = true
		}
	case ChangeGone:
		delete(w.known, change.InstanceID)
	case ChangeSynced:
		for id := range w.known {
			if !(*present)[id] {
				delete(w.known, id)
				w.tell(Change{Type: ChangeGone, InstanceID: id})
			}
		}
		*present, w.synced = nil, true
	default:
		return // ping, and unknown types
	}
	w.tell(change)
}

func (w *watch) tell(change Change) {
	if !w.left && !w.yield(change, nil) {
		w.left = true
	}
}
