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
	sessionFile          = "session.json"
	maxCommittedSessions = 1024      // committed pushes whose repeated commit is answered immediately
	minEvictableIdle     = time.Hour // how long an idle push is protected from other pushes that need its slot
	maxPushFiles         = 256       // of one push
)

// session is one push from its negotiation to its end. Its state is on disk, so that it continues after a
// restart: session.json, and for each file its bytes, its part map and, once received, its index.
type session struct {
	id            string
	templateID    string          // template id
	caller        string          // that opened it, see Negotiate
	startedAt     time.Time       // in this process
	request       api.PushRequest // immutable
	uploads       []*upload       // as request.Files
	baseTemplates []string        // templates on whose layers it may rest; nil: all

	commitMu sync.Mutex // held during a commit

	mu           sync.Mutex // guards the fields below
	lastUsed     time.Time
	pinnedLayers map[blob.Digest]bool
	closed       bool            // accepts no more parts
	result       *api.PushResult // set when it is committed
}

// sessionRecord is the content of session.json.
type sessionRecord struct {
	ID         string          `json:"id"`
	TemplateID string          `json:"template_id"`
	Caller     string          `json:"caller,omitempty"`
	Request    api.PushRequest `json:"request"`
	// ParentChains are the parent chains of the files, in the order of the request: the versions that name these
	// layers may be reverted before the commit.
	ParentChains [][]layout.Layer `json:"chains,omitempty"`
	// BaseTemplates names the templates on whose layers a restricted push may rest.
	BaseTemplates []string        `json:"on,omitempty"`
	Result        *api.PushResult `json:"result,omitempty"` // set when it is committed
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

func (s *session) recordUse(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastUsed = now
}

func (s *session) lastUse() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lastUsed
}

// isEvictable reports whether the session may be evicted for another push: it has been idle for long.
func (s *session) isEvictable(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return now.Sub(s.lastUsed) > minEvictableIdle
}

// isEmpty reports whether no bytes of the push were received or are being received.
func (s *session) isEmpty() bool {
	return !slices.ContainsFunc(s.uploads, (*upload).hasReceived)
}

// checkOpen returns an error if the session accepts no requests.
func (s *session) checkOpen() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return farm.NotFound()
	}
	return nil
}

func (s *session) findUpload(name string) (*upload, error) {
	for _, u := range s.uploads {
		if u.pushFile.Name == name {
			return u, nil
		}
	}
	return nil, farm.NotFound()
}

// useSession finds a push by its id and counts the call as activity.
func (r *Registry) useSession(id string) (*session, error) {
	r.mu.Lock()
	s := r.sessions[id]
	r.mu.Unlock()
	if s == nil {
		return nil, farm.NotFound()
	}
	s.recordUse(r.opts.Now())
	return s, nil
}

func (r *Registry) newSession(record sessionRecord) (*session, error) {
	record.ID, record.TemplateID = newSessionID(), record.Request.ID
	if record.TemplateID == "" {
		record.TemplateID = newTemplateID()
	}
	s := r.sessionFromRecord(record)
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

func (r *Registry) sessionFromRecord(record sessionRecord) *session {
	s := &session{
		id: record.ID, templateID: record.TemplateID, caller: record.Caller, request: record.Request,
		startedAt:     r.opts.Now(),
		baseTemplates: record.BaseTemplates,
		lastUsed:      r.opts.Now(), pinnedLayers: map[blob.Digest]bool{}, closed: record.Result != nil,
		result: record.Result,
	}
	for i, spec := range record.Request.Files {
		u := &upload{
			id: blob.Upload{PushSession: record.ID, FileIndex: i}, pushFile: spec,
			parts: map[int64]*receivedPart{},
		}
		if i < len(record.ParentChains) {
			u.parentChain = record.ParentChains[i]
		}
		s.uploads = append(s.uploads, u)
	}
	return s
}

// committedResult returns the result of a push that is committed, else nil.
func (s *session) committedResult() *api.PushResult {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.result
}

// finishSession ends a published push. Only its result stays, in memory, for a repeated commit. After a restart the
// version itself answers it, see resultOfSession.
func (r *Registry) finishSession(s *session, result *api.PushResult) {
	done := &session{id: s.id, templateID: s.templateID, lastUsed: r.opts.Now(), closed: true, result: result}
	done.request = api.PushRequest{ID: s.request.ID, Tag: s.request.Tag, Revert: s.request.Revert}
	for _, u := range s.uploads {
		done.uploads = append(done.uploads, &upload{id: u.id, pushFile: u.pushFile, parts: map[int64]*receivedPart{}})
	}
	s.mu.Lock()
	s.result = result
	s.mu.Unlock()
	r.closeSession(s)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sessions[s.id] = done
	r.committedSessions = append(r.committedSessions, s.id)
	if n := len(r.committedSessions) - maxCommittedSessions; n > 0 {
		for _, id := range r.committedSessions[:n] {
			delete(r.sessions, id)
		}
		r.committedSessions = r.committedSessions[n:]
	}
}

// resultOfSession returns the result of a push whose version exists, by its session.
func (r *Registry) resultOfSession(session string) *api.PushResult {
	for _, e := range r.snapshot.Load().sorted {
		if v := versionOfSession(e.template, session); v != nil {
			done := pushResult(e.template, v)
			return &done
		}
	}
	return nil
}

func (r *Registry) saveSession(s *session) error {
	record := sessionRecord{
		ID: s.id, TemplateID: s.templateID, Caller: s.caller, Request: s.request, BaseTemplates: s.baseTemplates,
		Result: s.committedResult(),
	}
	for _, u := range s.uploads {
		record.ParentChains = append(record.ParentChains, u.parentChain)
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
	entries, err := r.dir.ReadDir(layout.UploadDir)
	if err != nil {
		return fmt.Errorf("list uploads: %w", err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		if isSquashUpload(e.Name()) {
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
	if _, ok := layout.ParseID(record.TemplateID); !ok || record.ID != id || len(record.Request.Files) > maxPushFiles {
		return nil, errors.New("the session record is invalid")
	}
	if record.Result != nil || versionOfSession(r.snapshot.Load().findTemplate(record.TemplateID), id) != nil {
		return nil, nil
	}
	s := r.sessionFromRecord(record)
	s.lastUsed = r.sessionWrittenAt(id, s.lastUsed)
	for _, u := range s.uploads {
		if err := r.loadUpload(u); err != nil {
			return nil, err
		}
		if !u.indexDigest.IsZero() { // it may be a layer already
			r.pinStored(ctx, s, u.indexDigest)
		}
	}
	if err := r.pinChains(ctx, s); err != nil {
		r.closeSession(s)
		return nil, err
	}
	return s, nil
}

// sessionWrittenAt returns when the directory of a session was last written, so that restarts do not keep abandoned
// pushes alive. The client has an hour after a start in any case.
func (r *Registry) sessionWrittenAt(id string, now time.Time) time.Time {
	written := time.Time{}
	entries, _ := r.dir.ReadDir(path.Join(layout.UploadDir, id)) // without entries it is as old as possible
	for _, e := range entries {
		if st, err := e.Info(); err == nil && st.ModTime().After(written) {
			written = st.ModTime()
		}
	}
	if least := now.Add(min(minEvictableIdle, r.opts.IdlePushTimeout) - r.opts.IdlePushTimeout); written.Before(least) {
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
	r.closeSession(s)
	return r.dropUploads(ctx, s.id)
}

// dropUploads removes all files of a push.
func (r *Registry) dropUploads(ctx context.Context, session string) error {
	return errors.Join(r.store.DropUploads(ctx, session),
		r.dir.RemoveAll("session", path.Join(layout.UploadDir, session)))
}

// closeSession closes a session and releases its layers.
func (r *Registry) closeSession(s *session) {
	s.mu.Lock()
	pinned := s.pinnedLayers
	s.pinnedLayers, s.closed = nil, true
	s.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	for root := range pinned {
		if r.layerPins[root]--; r.layerPins[root] == 0 {
			delete(r.layerPins, root)
		}
	}
}

// pinStored pins a stored layer until the session ends. A layer in the trash is restored. It returns false if the
// layer is not stored.
func (r *Registry) pinStored(ctx context.Context, s *session, root blob.Digest) bool {
	if r.pinIfStored(s, root) {
		return true
	}
	return !r.hasStoredLayer(root) && r.restoreLayer(ctx, root) && r.pinIfStored(s, root)
}

func (r *Registry) pinIfStored(s *session, root blob.Digest) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.storedLayers[root] == nil || r.badLayers[root] != "" || s.closed {
		return false
	}
	if !s.pinnedLayers[root] {
		s.pinnedLayers[root] = true
		r.layerPins[root]++
	}
	return true
}

// restoreLayer moves a layer from the trash back into the store.
func (r *Registry) restoreLayer(ctx context.Context, root blob.Digest) bool {
	defer r.layerMutexes.lock(root)()
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
	r.storedLayers[root] = &storedLayer{size: st.Size()}
	delete(r.badLayers, root)
	return true
}
