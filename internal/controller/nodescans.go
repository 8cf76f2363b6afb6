package controller

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash/maphash"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/events"
	"github.com/buildyard/buildyard/internal/controller/lockorder"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// FileStore stores what is too large for the store: the file server of the registry.
type FileStore interface {
	// Upload stores a complete file, and replaces one of that name.
	Upload(ctx context.Context, name string, content []byte) error
	// Download returns a file; most limits its size in bytes. farm.CodeNotFound when it does not
	// exist.
	Download(ctx context.Context, name string, most int64) ([]byte, error)
	// RemoveFile removes a file; farm.CodeNotFound when there is none.
	RemoveFile(ctx context.Context, name string) error
}

// The two variants of the name of a node's file.
const (
	firstPlace  = "a"
	secondPlace = "b"
)

// scanFile returns the name of a node's file on the file server.
func scanFile(node, place string) string { return "node-scans/" + node + "/" + place + ".json.gz" }

// otherPlace returns the variant that the results do not use.
func otherPlace(s *record.NodeScan) string {
	if s != nil && s.Place == firstPlace {
		return secondPlace
	}
	return firstPlace
}

// scanLocks serialize the results of one node in this process.
type scanLocks struct {
	seed  maphash.Seed
	turns [64]lockorder.Mutex[lockorder.NodeScan]
}

func newScanTurns() *scanLocks { return &scanLocks{seed: maphash.MakeSeed()} }

func (t *scanLocks) of(node string) *lockorder.Mutex[lockorder.NodeScan] {
	return &t.turns[maphash.String(t.seed, node)%uint64(len(t.turns))]
}

// Bounds of the fields of a scan summary.
const (
	maxScanText  = 255
	maxScanCount = 1_000_000_000
	scanAhead    = 5 * time.Minute // how much the clock of a node may be ahead
)

// StoreScan stores results of a node, in place of older ones. packed is a gzip file with all of
// them. farm.CodeConflict means that newer ones exist.
func (c *Controller) StoreScan(ctx context.Context, s api.NodeScanSummary, packed []byte) error {
	node, _, err := record.Lookup(ctx, c.tables.Nodes, s.NodeID)
	if err != nil {
		return err
	}
	if err := c.checkScan(&s); err != nil {
		return err
	}
	if c.opts.Files == nil {
		return farm.Errorf(farm.CodeUnavailable, "This controller has no registry to store host scan results")
	}
	turn := c.scanTurns.of(s.NodeID)
	turn.Lock()
	defer turn.Unlock()
	old, rev, err := c.tables.Scans.GetLinearizable(ctx, s.NodeID)
	if err != nil {
		return err
	}
	if old != nil && s.Scanned.Before(old.Scanned) {
		return newerScan(old)
	}
	sum := sha256.Sum256(packed)
	scan := &record.NodeScan{NodeScanSummary: s, Place: otherPlace(old), Sum: hex.EncodeToString(sum[:])}
	if err := c.opts.Files.Upload(ctx, scanFile(s.NodeID, scan.Place), packed); err != nil {
		return err
	}
	w := store.Writer(c.store)
	if old == nil || old.Counts != s.Counts {
		w = c.Events.With(w, func() farm.Event { return scanned(node, &s) })
	}
	err = w.Commit(ctx, store.Put(c.tables.Scans, s.NodeID, scan, store.IfRev(rev)))
	if errors.Is(err, store.ErrConflict) {
		return farm.Errorf(farm.CodeConflict, "The host scan results of this node were changed concurrently; try again")
	}
	return err
}

func newerScan(old *record.NodeScan) error {
	return farm.Errorf(farm.CodeConflict, "Newer host scan results of this node exist, of %s",
		old.Scanned.Format(time.RFC3339))
}

// scanned returns the event of results with other counts than those before.
func scanned(node *farm.Node, s *api.NodeScanSummary) farm.Event {
	return events.OfNode(farm.EventNodeScanned, node,
		map[string]any{"host": s.Host, "scanner": s.Scanner, "counts": s.Counts})
}

// checkScan refuses values that no scanner sends. It converts times to UTC.
func (c *Controller) checkScan(s *api.NodeScanSummary) error {
	for _, f := range []struct{ name, value string }{{"host", s.Host}, {"scanner", s.Scanner}, {"version", s.Version}} {
		if f.value == "" || len(f.value) > maxScanText || !utf8.ValidString(f.value) ||
			strings.ContainsFunc(f.value, unicode.IsControl) {
			return farm.Invalid(f.name, "must have 1 to %d bytes and no control characters", maxScanText)
		}
	}
	s.Received = c.now()
	switch {
	case s.Scanned.IsZero():
		return farm.Invalid("scanned", "is required: want a time such as 2026-01-31T12:00:00Z")
	case s.Scanned.After(s.Received.Add(scanAhead)):
		return farm.Invalid("scanned", "is in the future: check the clock of the host")
	}
	for _, t := range []*time.Time{&s.Scanned, &s.Database, &s.LastScan} {
		*t = t.UTC()
	}
	n := s.Counts
	for _, f := range []struct {
		name  string
		value int
	}{
		{"critical", n.Critical},
		{"high", n.High},
		{"medium", n.Medium},
		{"low", n.Low},
		{"unknown", n.Unknown},
		{"packages", n.Packages},
		{"exploited", n.Exploited},
	} {
		if f.value < 0 || f.value > maxScanCount {
			return farm.Invalid("counts."+f.name, "must be an integer between 0 and %d", maxScanCount)
		}
	}
	return nil
}

// Scan returns the last results of a node, and the gzip file with all of them;
// farm.CodeNotFound when there are none.
func (c *Controller) Scan(ctx context.Context, id string) (*record.NodeScan, []byte, error) {
	if _, _, err := record.Lookup(ctx, c.tables.Nodes, id); err != nil {
		return nil, nil, err
	}
	if c.opts.Files == nil {
		return nil, nil, farm.NotFound()
	}
	var failed error
	for range 3 { // newer ones may replace them during the read
		s, _, ok := c.tables.Scans.Get(id)
		if !ok {
			return nil, nil, farm.NotFound()
		}
		packed, err := c.opts.Files.Download(ctx, scanFile(id, s.Place), api.MaxNodeScan)
		if err == nil {
			if sum := sha256.Sum256(packed); hex.EncodeToString(sum[:]) == s.Sum {
				return s, packed, nil
			}
		} else if farm.CodeOf(err) != farm.CodeNotFound {
			return nil, nil, err
		}
		failed = err
	}
	return nil, nil, farm.Unavailable(failed,
		"The host scan results at the registry are missing or damaged; the next report of the node replaces them")
}

// Scans returns the summaries of the last results of all nodes that have some, in the order of
// their ids.
func (c *Controller) Scans() []api.NodeScanSummary {
	list := make([]api.NodeScanSummary, 0, c.tables.Scans.Len())
	for id, s := range c.tables.Scans.All() {
		if _, _, ok := c.tables.Nodes.Get(id); ok {
			list = append(list, s.NodeScanSummary)
		}
	}
	return list
}

// tidyScans removes results of nodes that were removed, the files first.
func (c *Controller) tidyScans(ctx context.Context, w *record.Term, _ time.Time) error {
	for id := range c.tables.Scans.All() {
		if _, _, ok := c.tables.Nodes.Get(id); ok {
			continue
		}
		if err := c.dropScan(ctx, w, id); err != nil {
			return err
		}
	}
	return nil
}

func (c *Controller) dropScan(ctx context.Context, w store.Writer, id string) error {
	turn := c.scanTurns.of(id)
	turn.Lock()
	defer turn.Unlock()
	_, rev, err := c.tables.Scans.GetLinearizable(ctx, id)
	if err != nil || rev == 0 {
		return err
	}
	for _, place := range []string{firstPlace, secondPlace} {
		if c.opts.Files == nil {
			break
		}
		if err := c.opts.Files.RemoveFile(ctx, scanFile(id, place)); err != nil &&
			farm.CodeOf(err) != farm.CodeNotFound {
			return err
		}
	}
	return w.Commit(ctx, store.Delete(c.tables.Scans, id, store.IfRev(rev)))
}
