package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"syscall"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/layout"
)

// maxParallelParts is the number of concurrent parts that a client is asked to send.
const maxParallelParts = 4

// Negotiate opens a push without a caller, see NegotiateFor.
func (r *Registry) Negotiate(ctx context.Context, req api.PushRequest) (api.PushSession, error) {
	return r.NegotiateFor(ctx, "", req)
}

// NegotiateFor opens a push, or finds the one with the client's resume key. It refuses immediately what the
// commit would refuse, as far as that is known now. caller selects the limits that apply; an empty caller is
// limited only by the totals.
func (r *Registry) NegotiateFor(ctx context.Context, caller string, req api.PushRequest) (api.PushSession, error) {
	return r.NegotiateRestricted(ctx, caller, req, nil)
}

// NegotiateRestricted is NegotiateFor for a push that may rest only on layers of some templates, and must send
// everything else. nil: on layers of all.
func (r *Registry) NegotiateRestricted(
	ctx context.Context, caller string, req api.PushRequest, on []string,
) (_ api.PushSession, err error) {
	defer setDiskFull(&err)
	if err := checkPushRequest(&req); err != nil {
		return api.PushSession{}, err
	}
	if req.ID != "" {
		if _, err := planTemplate(r.snapshot.Load().findTemplate(req.ID), req, req.ID); err != nil {
			return api.PushSession{}, err
		}
	}
	s := r.findResumable(caller, req, on)
	if s == nil {
		if s, err = r.beginPush(ctx, sessionRecord{Caller: caller, Request: req, BaseTemplates: on}); err != nil {
			return api.PushSession{}, err
		}
	}
	return r.sessionState(s), nil
}

// beginPush opens a new push.
func (r *Registry) beginPush(ctx context.Context, record sessionRecord) (s *session, err error) {
	if record.ParentChains, err = r.resolveChains(ctx, record.Request, record.BaseTemplates); err != nil {
		return nil, err
	}
	s, err = r.reservePush(ctx, record)
	if err != nil {
		return nil, err
	}
	if err := r.pinChains(ctx, s); err != nil {
		return nil, errors.Join(err, r.endSession(ctx, s))
	}
	r.log.Info("push started", "session", s.id, "template", s.templateID, "tag", record.Request.Tag, "files",
		len(record.Request.Files))
	return s, nil
}

// reservePush checks the limits and the free space for a push and reserves both.
func (r *Registry) reservePush(ctx context.Context, record sessionRecord) (*session, error) {
	r.reserveMu.Lock()
	defer r.reserveMu.Unlock()
	if err := r.Ready(ctx); err != nil {
		return nil, err
	}
	if err := r.admitPush(ctx, record.Caller); err != nil {
		return nil, err
	}
	if r.reserveReleased.Load() {
		r.maintainReserve(ctx)
	}
	if err := r.checkSpace(ctx, record.Caller, record.Request, record.ParentChains); err != nil {
		return nil, err
	}
	return r.newSession(record)
}

func (s *snapshot) findTemplate(id string) *layout.Template {
	if e := s.templates[id]; e != nil {
		return e.template
	}
	return nil
}

// findResumable finds the session of a resume key that the same caller opened, for the same layers; nil when there
// is none.
func (r *Registry) findResumable(caller string, req api.PushRequest, on []string) *session {
	for _, s := range r.allSessions() {
		mine := s.caller == caller && slices.Equal(s.baseTemplates, on)
		if mine && req.ResumeKey != "" && s.request.ResumeKey == req.ResumeKey && s.committedResult() == nil &&
			sameRequest(s.request, req) {
			s.recordUse(r.opts.Now())
			return s
		}
	}
	return nil
}

// longestTemplateName takes as many bytes as the longest template name in a configuration: a configuration that fits
// with it fits at the commit.
var longestTemplateName = strings.Repeat("\u2028", 255/len("\u2028"))

func sameRequest(a, b api.PushRequest) bool {
	return a.ID == b.ID && a.Name == b.Name && a.Tag == b.Tag && a.MustExist == b.MustExist &&
		a.Description == b.Description &&
		a.Arch == b.Arch && equalPointers(a.Gen, b.Gen) && equalPointers(a.Revert, b.Revert) &&
		slices.Equal(a.Config, b.Config) &&
		slices.Equal(a.NVRAM, b.NVRAM) && slices.EqualFunc(a.Files, b.Files, sameFileRequest)
}

// sameFileRequest compares the descriptions of a file in two negotiations, except the estimated bytes to send.
func sameFileRequest(a, b api.PushFile) bool {
	a.Data, b.Data = 0, 0
	return a == b
}

func equalPointers[T comparable](a, b *T) bool {
	return a == nil && b == nil || a != nil && b != nil && *a == *b
}

// checkPushRequest validates a negotiation and normalizes it.
func checkPushRequest(req *api.PushRequest) error {
	if req.ID != "" {
		id, ok := layout.ParseID(req.ID)
		if !ok {
			return farm.Invalid("id", "must be a UUID")
		}
		req.ID = id
	}
	switch {
	case req.ID == "" && req.MustExist:
		return farm.Invalid("id", "is required if must_exist is set")
	case req.ID == "" && req.Name == "":
		return farm.Invalid("name", "is required for a new template")
	case !layout.ValidText(req.Name, 255):
		return farm.Invalid("name", "must have at most 255 bytes and no control characters")
	case req.Name != "" && strings.TrimSpace(req.Name) == "":
		return farm.Invalid("name", "must not consist of spaces")
	case strings.TrimSpace(req.Tag) == "":
		return farm.Invalid("tag", "is required")
	case !layout.ValidTag(req.Tag):
		return farm.Invalid("tag", "must have at most 255 bytes and no control characters")
	case len(req.Description) > 4096:
		return farm.Invalid("description", "must have at most 4096 bytes")
	case !layout.ValidArch(req.Arch):
		return farm.Invalid("arch", "must be amd64 or arm64")
	case len(req.NVRAM) > layout.MaxNVRAM:
		return farm.Invalid("nvram", "must have at most %d bytes", layout.MaxNVRAM)
	case len(req.ResumeKey) > 128:
		return farm.Invalid("resume_key", "must have at most 128 bytes")
	case len(req.Files) > maxPushFiles:
		return farm.Invalid("files", "must have at most %d elements", maxPushFiles)
	}
	config, err := layout.CanonicalConfig(req.Config)
	if err != nil {
		return farm.Invalid("config", "%v", err)
	}
	if _, err := configWithIdentity(config,
		&layout.Template{ID: newTemplateID(), Name: longestTemplateName}); err != nil {
		return farm.Invalid("config", "%v", err)
	}
	req.Config = config
	if err := checkPushFiles(req.Files); err != nil {
		return err
	}
	return checkConfig(req.Config, req.Files, req.Arch)
}

func checkPushFiles(files []api.PushFile) error {
	names := map[string]bool{}
	for _, f := range files {
		_, badRoot := blob.ParseDigest(f.Root)
		parent, badParent := blob.ParseDigest(f.Parent)
		switch {
		case !layout.ValidFileName(f.Name):
			return farm.Invalid("files", "invalid file name %q: want letters, digits, '.', '_', '-', at most 128",
				f.Name)
		case names[f.Name]:
			return farm.Invalid("files", "file name %q occurs twice", f.Name)
		case f.Kind != api.FileDisk && f.Kind != api.FileState:
			return farm.Invalid("files", "kind of %s must be %s or %s", f.Name, api.FileDisk, api.FileState)
		case !slices.Contains(diskFormats, f.Format):
			return farm.Invalid("files", "format of %s must be one of %s", f.Name, diskFormatNames)
		case f.Format == api.FormatAnka && f.Kind != api.FileDisk:
			return farm.Invalid("files", "%s is not a disk: only a disk can have the format %s", f.Name, f.Format)
		case f.Size < 0 || f.Size > blob.MaxContentSize:
			return farm.Invalid("files", "size of %s must be between 0 and %d", f.Name, int64(blob.MaxContentSize))
		case f.Data < 0:
			return farm.Invalid("files", "data size of %s must not be negative", f.Name)
		case f.Root != "" && badRoot != nil:
			return farm.Invalid("files", "digest of %s must be 64 hex digits", f.Name)
		case f.Parent != "" && (badParent != nil || parent.IsZero()):
			return farm.Invalid("files", "parent of %s must be 64 hex digits that are not all 0", f.Name)
		case f.Parent != "" && f.Kind != api.FileDisk:
			return farm.Invalid("files", "%s is not a disk: only the layer of a disk has parent layers", f.Name)
		}
		names[f.Name] = true
	}
	return nil
}

// sessionState returns the state of each file of a session.
func (r *Registry) sessionState(s *session) api.PushSession {
	out := api.PushSession{
		Session: s.id, ID: s.templateID, PartMax: blob.MaxPartSize, Parallel: maxParallelParts,
		PeerSums: r.opts.PeerSums,
		Expires:  r.opts.Now().Add(r.opts.IdlePushTimeout).Unix(), Files: make([]api.PushFileState, 0, len(s.uploads)),
	}
	for _, u := range s.uploads {
		state := u.apiState()
		if u.isStored() || s.committedResult() != nil {
			state = api.PushFileState{Name: u.pushFile.Name, State: api.PushExists}
		}
		out.Files = append(out.Files, state)
	}
	return out
}

// PushSession returns the state of a push.
func (r *Registry) PushSession(_ context.Context, id string) (api.PushSession, error) {
	s, err := r.useSession(id)
	if err != nil {
		return api.PushSession{}, err
	}
	return r.sessionState(s), nil
}

// PutPart receives frames of a file. off is the offset of the first one in the layer file. A part may be sent
// again; one that is truncated or damaged counts as not sent.
func (r *Registry) PutPart(ctx context.Context, session, file string, off int64, body io.Reader) error {
	s, u, err := r.openUpload(session, file)
	if err == nil {
		err = r.refuseWhenFull()
	}
	if err != nil {
		return err
	}
	src, err := blob.NewPartReader(body)
	if err != nil {
		return partError(err)
	}
	p := &receivedPart{off: off, bytes: src.DataBytes(), frames: src.Frames()}
	if err := u.beginPart(p); err != nil {
		return err
	}
	r.recordTraffic()
	n, err := r.store.WritePart(ctx, u.id, off, freezeGuard{src, u, r.sumDecoded(p)})
	r.metrics.receivedBytes.Add(n)
	if err == nil {
		err = r.recordPart(u, p)
	}
	if setDiskFull(&err); farm.CodeOf(err) == farm.CodeUnavailable {
		r.discardPart(ctx, u, p)
	} else {
		u.endPart(p, err == nil)
	}
	s.recordUse(r.opts.Now())
	if err != nil {
		return partError(err)
	}
	return nil
}

// sumDecoded returns what adds the sum of a frame's decoded bytes to a part; nil: none is kept.
func (r *Registry) sumDecoded(p *receivedPart) func(frame []byte) {
	if !r.opts.PeerSums {
		return nil
	}
	buf := blob.NewDecodeBuffer()
	return func(frame []byte) { p.decoded = append(p.decoded, blob.SumDecoded(frame, buf)) }
}

// checkLayerFits reports whether a layer can be the content of a file.
func checkLayerFits(x *blob.Index, spec api.PushFile) error {
	isState := x.Kind() == blob.KindState
	switch {
	case isState != (spec.Kind == api.FileState):
		return farm.Invalid("index", "frame index is of another file kind than %s", spec.Name)
	case x.ContentSize() != spec.Size:
		return farm.Invalid("index", "frame index is of a file of %d bytes, but %s has %d bytes", x.ContentSize(),
			spec.Name,
			spec.Size)
	case parentString(x) != spec.Parent:
		return farm.Invalid("index", "frame index has the parent %q, but %s was announced with the parent %q",
			parentString(x), spec.Name,
			spec.Parent)
	case !x.Squashes().IsZero():
		// The registry cannot verify the content of such a layer: only the registry makes them.
		return farm.Refused("Squashed layers cannot be pushed")
	}
	return nil
}

// parentString returns the parent of a layer in the form of a push: "" is zeros.
func parentString(x *blob.Index) string {
	if x.Parent().IsZero() {
		return ""
	}
	return x.Parent().String()
}

func (r *Registry) openUpload(session, file string) (*session, *upload, error) {
	s, err := r.useSession(session)
	if err != nil {
		return nil, nil, err
	}
	if err := s.checkOpen(); err != nil {
		return nil, nil, err
	}
	u, err := s.findUpload(file)
	return s, u, err
}

// AbortPush ends a push. A committed one stays.
func (r *Registry) AbortPush(ctx context.Context, id string) error {
	s, err := r.useSession(id)
	if err != nil {
		return err
	}
	s.commitMu.Lock()
	defer s.commitMu.Unlock()
	if s.committedResult() != nil {
		return farm.Refused("The push is already committed; revert the version instead")
	}
	r.log.Info("push aborted", "session", id)
	return r.endSession(ctx, s)
}

// partError sets the code of failures of received bytes: damage is caused by the sender or the network, and
// another attempt of the same part may succeed.
func partError(err error) error {
	switch {
	case isCorrupt(err):
		return &farm.Error{Code: farm.CodeInvalid, Field: "body", Message: fmt.Sprintf("body: %v", err), Err: err}
	case isTruncated(err):
		return &farm.Error{Code: farm.CodeInvalid, Field: "body", Message: "body: it ends too early", Err: err}
	case errors.Is(err, syscall.EFBIG):
		return &farm.Error{
			Code:    farm.CodeTooLarge,
			Message: "The file system of the registry's storage cannot hold so large a file", Err: err,
		}
	}
	return err
}
