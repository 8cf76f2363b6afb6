package registry

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/layout"
)

const (
	sessionFile  = "session.json"
	maxCommitted = 1024      // committed pushes whose repeated commit is answered immediately
	keepIdle     = time.Hour // how long an idle push is protected from other pushes that need its slot
	maxFiles     = 256       // of one push
)

// session is one push from its negotiation to its end. Its state is on disk, so that it continues after a
// restart: session.json, and for each file its bytes, its part map and, once received, its index.
type session struct {
	id      string
	target  string          // template id
	caller  string          // that opened it, see Negotiate
	begun   time.Time       // in this process
	request api.PushRequest // immutable
	uploads []*upload       // as request.Files
	on      []string        // templates on whose layers it may rest; nil: all

	commit sync.Mutex // held during a commit

	mu      sync.Mutex // guards the fields below
	touched time.Time
	pinned  map[blob.Digest]bool
	closed  bool            // accepts no more parts
	result  *api.PushResult // set when it is committed
}

// sessionRecord is the content of session.json.
type sessionRecord struct {
	ID         string          `json:"id"`
	TemplateID string          `json:"template_id"`
	Caller     string          `json:"caller,omitempty"`
	Request    api.PushRequest `json:"request"`
	// Chains are the parent chains of the files, in the order of the request: the versions that name these
	// layers may be reverted before the commit.
	Chains [][]layout.Layer `json:"chains,omitempty"`
	// On names the templates on whose layers a restricted push may rest.
	On     []string        `json:"on,omitempty"`
	Result *api.PushResult `json:"result,omitempty"` // set when it is committed
}

func newSessionID() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

func newTemplateID() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80 // RFC 9562, version 4
	s := hex.EncodeToString(b[:])
	return s[:8] + "-" + s[8:12] + "-" + s[12:16] + "-" + s[16:20] + "-" + s[20:]
}

func sessionPath(id, name string) string { return path.Join(layout.UploadDir, id, name) }

func (s *session) touch(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.touched = now
}

func (s *session) lastTouch() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.touched
}

// spare reports whether the session may be evicted for another push: it has been idle for long.
func (s *session) spare(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return now.Sub(s.touched) > keepIdle
}

// empty reports whether no bytes of the push were received or are being received.
func (s *session) empty() bool {
	return !slices.ContainsFunc(s.uploads, (*upload).hasReceived)
}

// open returns an error if the session accepts no requests.
func (s *session) open() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return farm.NotFound()
	}
	return nil
}

func (s *session) file(name string) (*upload, error) {
	for _, u := range s.uploads {
		if u.spec.Name == name {
			return u, nil
		}
	}
	return nil, farm.NotFound()
}

// session finds a push by its id and counts the call as activity.
func (r *Registry) session(id string) (*session, error) {
	r.mu.Lock()
	s := r.sessions[id]
	r.mu.Unlock()
	if s == nil {
		return nil, farm.NotFound()
	}
	s.touch(r.o.Now())
	return s, nil
}

func (r *Registry) newSession(record sessionRecord) (*session, error) {
	record.ID, record.TemplateID = newSessionID(), record.Request.ID
	if record.TemplateID == "" {
		record.TemplateID = newTemplateID()
	}
	s := r.makeSession(record)
	if err := r.dir.MkdirAll(path.Join(layout.UploadDir, s.id)); err != nil {
		return nil, err
	}
	if err := r.saveSession(s); err != nil {
		return nil, errors.Join(err, r.dir.RemoveAll("session", path.Join(layout.UploadDir, s.id)))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sessions[s.id] = s
	return s, nil
}

func (r *Registry) makeSession(record sessionRecord) *session {
	s := &session{
		id: record.ID, target: record.TemplateID, caller: record.Caller, request: record.Request, begun: r.o.Now(),
		on:      record.On,
		touched: r.o.Now(), pinned: map[blob.Digest]bool{}, closed: record.Result != nil, result: record.Result,
	}
	for i, spec := range record.Request.Files {
		u := &upload{id: blob.Upload{Session: record.ID, File: i}, spec: spec, parts: map[int64]*part{}}
		if i < len(record.Chains) {
			u.chain = record.Chains[i]
		}
		s.uploads = append(s.uploads, u)
	}
	return s
}

// done returns the result of a push that is committed, else nil.
func (s *session) done() *api.PushResult {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.result
}

// finish ends a published push. Only its result stays, in memory, for a repeated commit. After a restart the
// version itself answers it, see committedAs.
func (r *Registry) finish(s *session, result *api.PushResult) {
	done := &session{id: s.id, target: s.target, touched: r.o.Now(), closed: true, result: result}
	done.request = api.PushRequest{ID: s.request.ID, Tag: s.request.Tag, Revert: s.request.Revert}
	for _, u := range s.uploads {
		done.uploads = append(done.uploads, &upload{id: u.id, spec: u.spec, parts: map[int64]*part{}})
	}
	s.mu.Lock()
	s.result = result
	s.mu.Unlock()
	r.unpin(s)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sessions[s.id] = done
	r.committed = append(r.committed, s.id)
	if n := len(r.committed) - maxCommitted; n > 0 {
		for _, id := range r.committed[:n] {
			delete(r.sessions, id)
		}
		r.committed = r.committed[n:]
	}
}

// committedAs returns the result of a push whose version exists, by its session.
func (r *Registry) committedAs(session string) *api.PushResult {
	for _, e := range r.snap.Load().order {
		if v := committed(e.t, session); v != nil {
			done := result(e.t, v)
			return &done
		}
	}
	return nil
}

func (r *Registry) saveSession(s *session) error {
	record := sessionRecord{
		ID: s.id, TemplateID: s.target, Caller: s.caller, Request: s.request, On: s.on,
		Result: s.done(),
	}
	for _, u := range s.uploads {
		record.Chains = append(record.Chains, u.chain)
	}
	raw, err := json.Marshal(record)
	if err != nil {
		return fmt.Errorf("encode session: %w", err)
	}
	return r.dir.WriteFile("session", sessionPath(s.id, sessionFile), raw)
}

// loadSessions resumes the pushes that a stop of the process interrupted. One that cannot be read is removed:
// its client starts again.
func (r *Registry) loadSessions(ctx context.Context) error {
	entries, err := r.dir.Names(layout.UploadDir)
	if err != nil {
		return fmt.Errorf("list uploads: %w", err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		if isMerge(e.Name()) {
			if err := r.dir.RemoveAll("tidy", path.Join(layout.UploadDir, e.Name())); err != nil {
				return err
			}
			continue
		}
		s, err := r.loadSession(ctx, e.Name())
		if err != nil {
			r.log.Warn("reading an unfinished push session failed", "session", e.Name(), "error", err)
		}
		if s == nil {
			if err := r.dir.RemoveAll("tidy", path.Join(layout.UploadDir, e.Name())); err != nil {
				return err
			}
			continue
		}
		r.sessions[s.id] = s
	}
	return nil
}

// loadSession reads a push; nil when it is committed.
func (r *Registry) loadSession(ctx context.Context, id string) (*session, error) {
	raw, err := r.dir.Root().ReadFile(sessionPath(id, sessionFile))
	if err != nil {
		return nil, err
	}
	var record sessionRecord
	if err := json.Unmarshal(raw, &record); err != nil {
		return nil, err
	}
	if _, ok := layout.ParseID(record.TemplateID); !ok || record.ID != id || len(record.Request.Files) > maxFiles {
		return nil, errors.New("the session record is invalid")
	}
	if record.Result != nil || committed(r.snap.Load().template(record.TemplateID), id) != nil {
		return nil, nil
	}
	s := r.makeSession(record)
	s.touched = r.lastWrite(id, s.touched)
	for _, u := range s.uploads {
		if err := r.loadUpload(u); err != nil {
			return nil, err
		}
		if !u.index.IsZero() { // it may be a layer already
			r.pinStored(ctx, s, u.index)
		}
	}
	if err := r.pinChains(ctx, s); err != nil {
		r.unpin(s)
		return nil, err
	}
	return s, nil
}

// lastWrite returns when the directory of a session was last written, so that restarts do not keep abandoned
// pushes alive. The client has an hour after a start in any case.
func (r *Registry) lastWrite(id string, now time.Time) time.Time {
	written := time.Time{}
	entries, _ := r.dir.Names(path.Join(layout.UploadDir, id)) // without entries it is as old as possible
	for _, e := range entries {
		if st, err := e.Info(); err == nil && st.ModTime().After(written) {
			written = st.ModTime()
		}
	}
	if least := now.Add(min(keepIdle, r.o.IdlePush) - r.o.IdlePush); written.Before(least) {
		return least
	}
	if written.After(now) {
		return now
	}
	return written
}

// endSession removes a session and its uploads.
func (r *Registry) endSession(ctx context.Context, s *session) error {
	r.mu.Lock()
	delete(r.sessions, s.id)
	r.mu.Unlock()
	r.unpin(s)
	return r.dropUploads(ctx, s.id)
}

// dropUploads removes all files of a push.
func (r *Registry) dropUploads(ctx context.Context, session string) error {
	return errors.Join(r.store.Drop(ctx, session), r.dir.RemoveAll("session", path.Join(layout.UploadDir, session)))
}

// unpin closes a session and releases its layers.
func (r *Registry) unpin(s *session) {
	s.mu.Lock()
	pinned := s.pinned
	s.pinned, s.closed = nil, true
	s.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	for root := range pinned {
		if r.pins[root]--; r.pins[root] == 0 {
			delete(r.pins, root)
		}
	}
}

// pinStored pins a stored layer until the session ends. A layer in the trash is restored. It returns false if the
// layer is not stored.
func (r *Registry) pinStored(ctx context.Context, s *session, root blob.Digest) bool {
	if r.pinIfStored(s, root) {
		return true
	}
	return !r.holds(root) && r.restore(ctx, root) && r.pinIfStored(s, root)
}

func (r *Registry) pinIfStored(s *session, root blob.Digest) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held[root] == nil || r.bad[root] != "" || s.closed {
		return false
	}
	if !s.pinned[root] {
		s.pinned[root] = true
		r.pins[root]++
	}
	return true
}

// restore moves a layer from the trash back into the store.
func (r *Registry) restore(ctx context.Context, root blob.Digest) bool {
	defer r.roots.lock(root)()
	ok, err := r.store.Restore(ctx, root)
	if err != nil {
		r.log.Warn("restoring a layer from the trash failed", "layer", root, "error", err)
	}
	if !ok || err != nil {
		return false
	}
	f, err := r.store.Open(ctx, root)
	if err != nil {
		return false
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held[root] = &storedLayer{size: st.Size()}
	delete(r.bad, root)
	return true
}
