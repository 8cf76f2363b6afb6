package nodescans

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/controller/vulntext"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// FileStore stores what is too large for the store: the file server of the registry.
type FileStore interface {
	// UploadFile stores a complete file, and replaces one of that name.
	UploadFile(ctx context.Context, name string, content []byte) error
	// DownloadFile returns a file; maxBytes limits its size. farm.CodeNotFound when it does not exist.
	DownloadFile(ctx context.Context, name string, maxBytes int64) ([]byte, error)
	// RemoveFile removes a file; farm.CodeNotFound when there is none.
	RemoveFile(ctx context.Context, name string) error
}

// Options configure Scans.
type Options struct {
	Files FileStore // nil: nothing can be stored
	// WithEvent returns a writer whose commits carry an event as well.
	WithEvent func(w store.Writer, event func() farm.Event) store.Writer
}

// Scans are the last results of the nodes.
type Scans struct {
	db    record.DB
	opts  Options
	locks nodeLocks
}

// New returns the results in a database.
func New(db record.DB, opts Options) *Scans { return &Scans{db: db, opts: opts, locks: newNodeLocks()} }

// The two variants of the name of a node's file.
const (
	firstPlace  = "a"
	secondPlace = "b"
)

// fileName returns the name of a node's file on the file server.
func fileName(node, place string) string { return "node-scans/" + node + "/" + place + ".json.gz" }

// otherPlace returns the variant that the results do not use.
func otherPlace(s *record.NodeScan) string {
	if s != nil && s.Place == firstPlace {
		return secondPlace
	}
	return firstPlace
}

// Put stores results of a node, in place of older ones. packed is a gzip file with all of them, found the
// vulnerabilities in it. farm.CodeConflict means that newer ones exist.
func (s *Scans) Put(
	ctx context.Context, summary api.NodeScanSummary, packed []byte, found []api.FoundVulnerability,
) error {
	node, _, err := record.Lookup(ctx, s.db.Tables.Nodes, summary.NodeID)
	if err != nil {
		return err
	}
	summary.Received = s.db.Now()
	if err := validate(&summary); err != nil {
		return err
	}
	if s.opts.Files == nil {
		return farm.Errorf(farm.CodeUnavailable, "This controller has no registry to store host scan results")
	}

	lock := s.locks.of(node.ID)
	lock.Lock()
	defer lock.Unlock()
	old, rev, err := s.db.Tables.Scans.GetLinearizable(ctx, node.ID)
	if err != nil {
		return err
	}
	if old != nil && summary.Scanned.Before(old.Scanned) {
		return farm.Errorf(farm.CodeConflict, "Newer host scan results of this node exist, of %s",
			old.Scanned.Format(time.RFC3339))
	}
	scan := &record.NodeScan{NodeScanSummary: summary, Place: otherPlace(old), Sum: digest(packed)}
	scan.Found, scan.Truncated = vulntext.EncodeSome(found)
	if err := s.opts.Files.UploadFile(ctx, fileName(node.ID, scan.Place), packed); err != nil {
		return err
	}

	w := s.withFoundEvent(s.db.Store, node, old, scan)
	if old == nil || old.Counts != summary.Counts {
		w = s.opts.WithEvent(w, func() farm.Event { return scanEvent(node, summary) })
	}
	err = w.Commit(ctx, store.Put(s.db.Tables.Scans, node.ID, scan, store.IfRev(rev)))
	if errors.Is(err, store.ErrConflict) {
		return farm.Errorf(farm.CodeConflict, "The host scan results of this node were changed concurrently; try again")
	}
	return err
}

func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// scanEvent returns the event of results with other counts than those before.
func scanEvent(node *farm.Node, s api.NodeScanSummary) farm.Event {
	return farm.NewNodeEvent(farm.EventNodeScanned, node,
		map[string]any{"host": s.Host, "scanner": s.Scanner, "counts": s.Counts})
}

// withFoundEvent returns a writer whose commits carry the event about what was not found before, if there is any.
func (s *Scans) withFoundEvent(w store.Writer, node *farm.Node, old, scan *record.NodeScan) store.Writer {
	before := ""
	if old != nil {
		before = old.Found
	}
	added := vulntext.Added(before, scan.Found)
	if len(added) == 0 {
		return w
	}
	return s.opts.WithEvent(w, func() farm.Event {
		return vulntext.FoundEvent(map[string]any{"node_id": node.ID, "node_name": node.Name}, added)
	})
}

// Get returns the last results of a node, and the gzip file with all of them; farm.CodeNotFound when
// there are none.
func (s *Scans) Get(ctx context.Context, id string) (*record.NodeScan, []byte, error) {
	if _, _, err := record.Lookup(ctx, s.db.Tables.Nodes, id); err != nil {
		return nil, nil, err
	}
	if s.opts.Files == nil {
		return nil, nil, farm.NotFound()
	}
	var failed error
	for range 3 { // newer ones may replace them during the read
		scan, _, ok := s.db.Tables.Scans.Get(id)
		if !ok {
			return nil, nil, farm.NotFound()
		}
		packed, err := s.opts.Files.DownloadFile(ctx, fileName(id, scan.Place), api.MaxNodeScan)
		switch {
		case err == nil && digest(packed) == scan.Sum:
			return scan, packed, nil
		case err != nil && farm.CodeOf(err) != farm.CodeNotFound:
			return nil, nil, err
		}
		failed = err
	}
	return nil, nil, farm.Unavailable(failed,
		"The host scan results at the registry are missing or damaged; the next report of the node replaces them")
}

// List returns the summaries of the last results of all nodes that have some, in the order of their
// ids.
func (s *Scans) List() []api.NodeScanSummary {
	list := make([]api.NodeScanSummary, 0, s.db.Tables.Scans.Len())
	for id, scan := range s.db.Tables.Scans.All() {
		if _, _, ok := s.db.Tables.Nodes.Get(id); ok {
			list = append(list, scan.NodeScanSummary)
		}
	}
	return list
}

// Prune removes the results of nodes that were removed, the files first.
func (s *Scans) Prune(ctx context.Context, w *record.Term, _ time.Time) error {
	for id := range s.db.Tables.Scans.All() {
		if _, _, ok := s.db.Tables.Nodes.Get(id); ok {
			continue
		}
		if err := s.remove(ctx, w, id); err != nil {
			return err
		}
	}
	return nil
}

func (s *Scans) remove(ctx context.Context, w store.Writer, id string) error {
	lock := s.locks.of(id)
	lock.Lock()
	defer lock.Unlock()
	_, rev, err := s.db.Tables.Scans.GetLinearizable(ctx, id)
	if err != nil || rev == 0 {
		return err
	}
	for _, place := range []string{firstPlace, secondPlace} {
		if s.opts.Files == nil {
			break
		}
		if err := s.opts.Files.RemoveFile(ctx, fileName(id, place)); err != nil &&
			farm.CodeOf(err) != farm.CodeNotFound {
			return err
		}
	}
	return w.Commit(ctx, store.Delete(s.db.Tables.Scans, id, store.IfRev(rev)))
}
