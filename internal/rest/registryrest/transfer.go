package registryrest

import (
	"errors"
	"io"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/registry"
	"github.com/buildyard/buildyard/internal/rest"
)

const (
	// maxPartBody is the largest body of a part with its header.
	maxPartBody = blob.MaxPartSize + 1<<20
	// idleTimeout ends a bulk request on which no byte moved for that long.
	idleTimeout = 60 * time.Second
	// minBytesPerSecond is the minimum rate of a client's bulk request, in bytes a second.
	minBytesPerSecond = 16 << 10
	// bytesPerDeadline is how much of a response with bulk bytes the client must read within idle.
	bytesPerDeadline = 4 << 20
)

func (s service) negotiate(r *rest.Request) (any, error) {
	if err := checkProtocol(r.Request); err != nil {
		return nil, err
	}
	p := r.Params
	req := api.PushRequest{
		ID: p.String("id"), Name: p.String("name"), MustExist: p.Bool("must_exist", false), Tag: p.Required("tag"),
		Description: p.String("description"), Arch: p.OneOf("arch", "amd64", "arm64"),
		ResumeKey: p.String("resume_key"),
	}
	p.JSON("gen", &req.Gen)
	p.JSON("revert", &req.Revert)
	p.JSON("config", &req.Config)
	p.JSON("nvram", &req.NVRAM)
	p.JSON("files", &req.Files)
	if !p.Has("config") {
		p.RecordError("config", "is required")
	}
	if err := p.Err(); err != nil {
		return nil, err
	}
	caller := rest.CallerOf(r.Context())
	if caller.IsNode() {
		layers, err := checkNodePush(caller, req)
		if err == nil {
			err = checkCreate(caller, s.registry.PushTargetFor(req.ID, false))
		}
		if err != nil {
			return nil, err
		}
		return s.registry.NegotiateRestricted(r.Context(), rest.CallerName(r.Request), req, layers)
	}
	if err := checkPush(caller, s.registry.PushTargetFor(req.ID, req.Revert != nil)); err != nil {
		return nil, err
	}
	return s.registry.NegotiateFor(r.Context(), rest.CallerName(r.Request), req)
}

func (s service) getSession(r *rest.Request) (any, error) {
	if err := s.checkResume(r.Request); err != nil {
		return nil, err
	}
	return s.registry.PushSession(r.Context(), r.PathValue("session"))
}

func (s service) commit(r *rest.Request) (any, error) {
	var c api.PushCommit
	r.Params.JSON("roots", &c.Roots)
	r.Params.JSON("gen", &c.Gen)
	if err := r.Params.Err(); err != nil {
		return nil, err
	}
	if err := s.checkResume(r.Request); err != nil {
		return nil, err
	}
	return s.registry.CommitPush(r.Context(), r.PathValue("session"), c)
}

func (s service) abort(r *rest.Request) (any, error) {
	if err := s.checkResume(r.Request); err != nil {
		return nil, err
	}
	return rest.Null, s.registry.AbortPush(r.Context(), r.PathValue("session"))
}

// putPartOrIndex receives a part (off=) or the index (index=<root>) of a file and answers 204.
func (s service) putPartOrIndex(w http.ResponseWriter, r *http.Request) error {
	if err := s.checkResume(r); err != nil {
		return err
	}
	session, file, query := r.PathValue("session"), r.PathValue("file"), r.URL.Query()
	body := rest.NewMinRateBody(w, r, idleTimeout, minBytesPerSecond)
	defer func() { _ = body.Close() }()
	var err error
	if root := query.Get("index"); query.Has("of") {
		err = s.putIndexChunk(r, root, http.MaxBytesReader(w, body, blob.MaxIndexSize))
	} else if root != "" {
		err = s.registry.PutIndex(r.Context(), session, file, root, http.MaxBytesReader(w, body, blob.MaxIndexSize))
	} else {
		var off int64
		if off, err = strconv.ParseInt(query.Get("off"), 10, 64); err != nil || off < 0 {
			return farm.Invalid("off", "must be an integer between 0 and %d", int64(math.MaxInt64))
		}
		err = s.registry.PutPart(r.Context(), session, file, off, http.MaxBytesReader(w, body, maxPartBody))
	}
	var tooLong *http.MaxBytesError
	switch {
	case errors.As(err, &tooLong):
		return farm.Errorf(farm.CodeTooLarge, "The request body has more than %d bytes", tooLong.Limit)
	case err == nil:
		w.WriteHeader(http.StatusNoContent)
	}
	return err
}

// putIndexChunk receives a chunk (off=, of=<bytes of the whole>) of an index.
func (s service) putIndexChunk(r *http.Request, root string, body io.Reader) error {
	query := r.URL.Query()
	off, badOff := strconv.ParseInt(query.Get("off"), 10, 64)
	of, badOf := strconv.ParseInt(query.Get("of"), 10, 64)
	if badOff != nil || badOf != nil {
		return farm.Invalid("off", "off and of must be integers")
	}
	piece := registry.IndexChunk{Digest: root, Off: off, TotalBytes: of}
	return s.registry.PutIndexChunk(r.Context(), r.PathValue("session"), r.PathValue("file"), piece, body)
}

// getManifest returns the manifest of a version. With look=true it does not count as a pull.
func (s service) getManifest(r *rest.Request) (any, error) {
	if err := checkProtocol(r.Request); err != nil {
		return nil, err
	}
	ask, look := s.registry.Manifest, r.Params.Bool("look", false)
	if look {
		ask = s.registry.PeekManifest
	}
	ref, err := readRef(r.Params)
	if err != nil {
		return nil, err
	}
	if caller := rest.CallerOf(r.Context()); caller.IsNode() {
		err = checkNodePull(caller, ref, look)
	} else {
		err = checkRight(r, ref.ID, rightPull)
	}
	if err != nil {
		return nil, err
	}
	m, err := ask(r.Context(), ref)
	for i := range m.Files {
		for j := range m.Files[i].Layers {
			l := &m.Files[i].Layers[j]
			if address := s.registry.LayerURL(r.Context(), l.Root); address != "" {
				l.URLs = append(l.URLs, address)
			}
			l.URLs = append(l.URLs, blobPath+l.Root)
		}
	}
	return m, err
}

// putBootTrace stores what a VM of the caller read first.
func (s service) putBootTrace(r *rest.Request) (any, error) {
	p := r.Params
	t := api.BootTrace{ID: p.Required("id"), ContentID: p.Required("content_id")}
	p.JSON("files", &t.Files)
	if !p.Has("files") {
		p.RecordError("files", "is required")
	}
	if err := p.Err(); err != nil {
		return nil, err
	}
	var err error
	if caller := rest.CallerOf(r.Context()); caller.IsNode() {
		err = checkNodePull(caller, registry.VersionRef{ID: t.ID, ContentID: t.ContentID}, false)
	} else {
		err = checkRight(r, t.ID, rightPull)
	}
	if err != nil {
		return nil, err
	}
	return rest.Null, s.registry.AddBootTrace(rest.CallerName(r.Request), t)
}

// getLayer serves ranges of a layer file. A layer never changes, so its digest is its ETag and caches may keep it.
func (s service) getLayer(w http.ResponseWriter, r *http.Request) error {
	root := r.PathValue("root")
	if err := s.checkLayerDownload(r, root); err != nil {
		return err
	}
	f, err := s.registry.OpenBlob(r.Context(), root)
	if err != nil {
		return err
	}
	defer f.Close()
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("ETag", `"`+root+`"`)
	h.Set("Cache-Control", "private, max-age=31536000, immutable")
	out := newDeadlineWriter(w)
	http.ServeContent(out, r, "", time.Time{}, f)
	s.registry.CountSent(out.sentBytes)
	return nil
}

// expectReader is a file that is fetched from elsewhere, in requests of the announced size.
type expectReader interface{ ExpectRead(n int64) }

// deadlineWriter sets a deadline per stretch, so that a response may take as long as its client makes progress.
// Files are sent as efficiently as without it.
type deadlineWriter struct {
	http.ResponseWriter
	controller *http.ResponseController
	sentBytes  int64 // bytes of the body
}

func newDeadlineWriter(w http.ResponseWriter) *deadlineWriter {
	return &deadlineWriter{ResponseWriter: w, controller: http.NewResponseController(w)}
}

var _ io.ReaderFrom = (*deadlineWriter)(nil)

// a connection without deadlines has no limit
func (s *deadlineWriter) extendDeadline() {
	_ = s.controller.SetWriteDeadline(time.Now().Add(idleTimeout))
}

func (s *deadlineWriter) Write(p []byte) (int, error) {
	s.extendDeadline()
	n, err := s.ResponseWriter.Write(p) //nolint:gosec // every route sets a type that is not executed, and nosniff
	s.sentBytes += int64(n)
	return n, err
}

// ReadFrom sends the source in stretches, each as a bounded file that the system sends directly.
func (s *deadlineWriter) ReadFrom(src io.Reader) (int64, error) {
	bounded, ok := src.(*io.LimitedReader)
	if !ok {
		bounded = &io.LimitedReader{R: src, N: math.MaxInt64}
	}
	if remote, isRemote := bounded.R.(expectReader); ok && isRemote {
		remote.ExpectRead(bounded.N)
	}
	var sum int64
	for bounded.N > 0 {
		s.extendDeadline()
		part := &io.LimitedReader{R: bounded.R, N: min(bounded.N, bytesPerDeadline)}
		n, err := io.Copy(s.ResponseWriter, part)
		sum, bounded.N, s.sentBytes = sum+n, bounded.N-n, s.sentBytes+n
		if err != nil || part.N > 0 {
			return sum, err
		}
	}
	return sum, nil
}

// Unwrap returns the underlying writer for http.ResponseController.
func (s *deadlineWriter) Unwrap() http.ResponseWriter { return s.ResponseWriter }
