package connection

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/buildyard/buildyard/internal/agent/datadir"
	"github.com/buildyard/buildyard/internal/farm"
)

const (
	writeInterval = time.Minute // between two writes with the same outcome
	maxURLs       = 16          // the least recently used one is dropped
	maxText       = 512         // bytes of an error
	maxFile       = 64 << 10    // bytes of the file that are read
)

// Record is the content of the file.
type Record struct {
	Controllers    []Controller `json:"controllers,omitempty"`     // the most recently used first
	RegistryMirror string       `json:"registry_mirror,omitempty"` // URL for pulls; "": none
}

// Controller is the connection to one URL.
type Controller struct {
	URL         string    `json:"url"`
	LastSuccess time.Time `json:"last_success,omitzero"` // zero: never; up to a minute old
	LastError   *Error    `json:"last_error,omitempty"`  // nil: none was recorded
}

// Failing reports whether the last attempt failed.
func (c Controller) Failing() bool {
	return c.LastError != nil && !c.LastError.Time.Before(c.LastSuccess)
}

func (c Controller) lastUse() time.Time {
	if c.LastError != nil && c.LastError.Time.After(c.LastSuccess) {
		return c.LastError.Time
	}
	return c.LastSuccess
}

// Error is an attempt that failed.
type Error struct {
	Time   time.Time `json:"time"`
	Kind   Kind      `json:"kind"`
	Status int       `json:"status,omitempty"` // of HTTP; 0: there was no response
	Text   string    `json:"text"`
	Remedy string    `json:"remedy"`
}

// Log records the connections of an agent. The zero value and nil record nothing.
type Log struct {
	file string
	log  *slog.Logger
	now  func() time.Time

	mu      sync.Mutex // guards the fields below
	record  Record
	written time.Time
}

// Open returns the log in a data directory, with what was recorded before. mirror is the URL of the
// registry's mirror in use.
func Open(at datadir.Dir, mirror string, log *slog.Logger) *Log {
	l := &Log{file: at.ConnectionsFile(), log: log, now: time.Now}
	record, err := Read(at)
	if err != nil {
		log.Warn("the record of connections is not used", "error", err)
	}
	l.record = record
	if l.record.RegistryMirror != mirror {
		l.record.RegistryMirror = mirror
		l.writeLocked(l.now().UTC()) // no other goroutine has it yet
	}
	return l
}

// Read returns what an agent recorded; an empty record when there is none.
func Read(at datadir.Dir) (r Record, err error) {
	raw, err := os.ReadFile(at.ConnectionsFile())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return r, nil
	case err != nil:
		return r, fmt.Errorf("read the record of connections: %w", err)
	case len(raw) > maxFile:
		return r, fmt.Errorf("read the record of connections: %s has more than %d bytes", at.ConnectionsFile(), maxFile)
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		return Record{}, fmt.Errorf("read the record of connections %s: %w", at.ConnectionsFile(), err)
	}
	return r, nil
}

// Response records a response of a controller.
func (l *Log) Response(url string, status int) {
	kind := kindOfStatus(status)
	if kind == "" {
		l.note(url, nil)
		return
	}
	l.note(url, &Error{
		Kind: kind, Status: status, Text: fmt.Sprintf("the response was %d %s", status, http.StatusText(status)),
	})
}

// Failure records a request that had no response.
func (l *Log) Failure(url string, err error) {
	l.note(url, &Error{Kind: kindOf(err), Text: farm.Clip(err.Error(), maxText)})
}

// ProofFailure records a controller that did not prove to be part of the node's cloud.
func (l *Log) ProofFailure(url string, err error) {
	l.note(url, &Error{Kind: KindProof, Text: farm.Clip(err.Error(), maxText)})
}

// note records an outcome; nil: success.
func (l *Log) note(url string, failed *Error) {
	if l == nil {
		return
	}
	now := l.now().UTC()
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.IndexFunc(l.record.Controllers, func(c Controller) bool { return c.URL == url })
	if i < 0 {
		l.record.Controllers = append(l.record.Controllers, Controller{URL: url})
		i = len(l.record.Controllers) - 1
	}
	of := &l.record.Controllers[i]
	changed := of.lastUse().IsZero() || of.Failing() != (failed != nil) || failed != nil &&
		(failed.Kind != of.LastError.Kind || failed.Status != of.LastError.Status)
	if failed == nil {
		of.LastSuccess = now
	} else {
		failed.Time, failed.Remedy = now, failed.Kind.Remedy()
		of.LastError = failed
	}
	if changed || now.Sub(l.written) >= writeInterval || now.Before(l.written) {
		l.writeLocked(now)
	}
}

// writeLocked replaces the file. A failure is logged: the status command then shows older times.
func (l *Log) writeLocked(now time.Time) {
	l.written = now
	slices.SortStableFunc(l.record.Controllers, func(a, b Controller) int {
		return cmp.Or(b.lastUse().Compare(a.lastUse()), cmp.Compare(a.URL, b.URL))
	})
	l.record.Controllers = l.record.Controllers[:min(len(l.record.Controllers), maxURLs)]
	raw, err := json.Marshal(l.record)
	if err == nil {
		err = datadir.WriteFile(l.file, append(raw, '\n'))
	}
	if err != nil {
		l.log.Debug("writing the record of connections failed", "error", err)
	}
}

// Close writes what is not written yet, unless the file was removed: the node has left its cloud.
func (l *Log) Close() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := os.Stat(l.file); err == nil {
		l.writeLocked(l.now().UTC())
	}
}
