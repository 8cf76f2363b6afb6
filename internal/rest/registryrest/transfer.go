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
	maxPartBody = blob.MaxPart + 1<<20
	// idle ends a bulk request on which no byte moved for that long.
	idle = 60 * time.Second
	// leastRate is the minimum rate of a client's bulk request, in bytes a second.
	leastRate = 16 << 10
	// stretch is how much of a response with bulk bytes the client must read within idle.
	stretch = 4 << 20
)

func (s service) negotiate(r *rest.Request) (any, error) {
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
		layers, err := nodeMayPush(caller, req)
		if err == nil {
			err = mayCreate(caller, s.reg.TargetOf(req.ID, false))
		}
		if err != nil {
			return nil, err
		}
		return s.reg.NegotiateOn(r.Context(), rest.CallerName(r.Request), req, layers)
	}
	if err := mayPush(caller, s.reg.TargetOf(req.ID, req.Revert != nil)); err != nil {
		return nil, err
	}
	return s.reg.NegotiateFor(r.Context(), rest.CallerName(r.Request), req)
}

func (s service) session(r *rest.Request) (any, error) {
	if err := s.mayResume(r.Request); err != nil {
		return nil, err
	}
	return s.reg.Session(r.Context(), r.PathValue("session"))
}

func (s service) commit(r *rest.Request) (any, error) {
	var c api.PushCommit
	r.Params.JSON("roots", &c.Roots)
	r.Params.JSON("gen", &c.Gen)
	if err := r.Params.Err(); err != nil {
		return nil, err
	}
	if err := s.mayResume(r.Request); err != nil {
		return nil, err
	}
	return s.reg.Commit(r.Context(), r.PathValue("session"), c)
}

func (s service) abort(r *rest.Request) (any, error) {
	if err := s.mayResume(r.Request); err != nil {
		return nil, err
	}
	return rest.Null, s.reg.Abort(r.Context(), r.PathValue("session"))
}

// put receives a part (off=) or the index (index=<root>) of a file and answers 204.
func (s service) put(w http.ResponseWriter, r *http.Request) error {
	if err := s.mayResume(r); err != nil {
		return err
	}
	session, file, query := r.PathValue("session"), r.PathValue("file"), r.URL.Query()
	body := rest.NewBody(w, r, idle, leastRate)
	defer func() { _ = body.Close() }()
	var err error
	if root := query.Get("index"); query.Has("of") {
		err = s.putIndexChunk(r, root, http.MaxBytesReader(w, body, blob.MaxIndex))
	} else if root != "" {
		err = s.reg.PutIndex(r.Context(), session, file, root, http.MaxBytesReader(w, body, blob.MaxIndex))
	} else {
		var off int64
		if off, err = strconv.ParseInt(query.Get("off"), 10, 64); err != nil || off < 0 {
			return farm.Invalid("off", "must be an integer between 0 and %d", int64(math.MaxInt64))
		}
		err = s.reg.PutPart(r.Context(), session, file, off, http.MaxBytesReader(w, body, maxPartBody))
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
	piece := registry.IndexChunk{Root: root, Off: off, Of: of}
	return s.reg.PutIndexChunk(r.Context(), r.PathValue("session"), r.PathValue("file"), piece, body)
}

// manifest returns the manifest of a version. With look=true it does not count as a pull.
func (s service) manifest(r *rest.Request) (any, error) {
	ask, look := s.reg.Manifest, r.Params.Bool("look", false)
	if look {
		ask = s.reg.Look
	}
	ref, err := readRef(r.Params)
	if err != nil {
		return nil, err
	}
	if caller := rest.CallerOf(r.Context()); caller.IsNode() {
		err = nodeMayPull(caller, ref, look)
	} else {
		err = may(r, ref.ID, rightPull)
	}
	if err != nil {
		return nil, err
	}
	m, err := ask(r.Context(), ref)
	for i := range m.Files {
		for j := range m.Files[i].Layers {
			l := &m.Files[i].Layers[j]
			l.URLs = []string{blobPath + l.Root}
		}
	}
	return m, err
}

// blob serves ranges of a layer file. A layer never changes, so its digest is its ETag and caches may keep it.
func (s service) blob(w http.ResponseWriter, r *http.Request) error {
	root := r.PathValue("root")
	if err := s.mayLoad(r, root); err != nil {
		return err
	}
	f, err := s.reg.OpenBlob(r.Context(), root)
	if err != nil {
		return err
	}
	defer f.Close()
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("ETag", `"`+root+`"`)
	h.Set("Cache-Control", "private, max-age=31536000, immutable")
	out := newIdleWriter(w)
	http.ServeContent(out, r, "", time.Time{}, f)
	s.reg.CountSent(out.sent)
	return nil
}

// idleWriter sets a deadline per stretch, so that a response may take as long as its client makes progress.
// Files are sent as efficiently as without it.
type idleWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	sent    int64 // bytes of the body
}

func newIdleWriter(w http.ResponseWriter) *idleWriter {
	return &idleWriter{ResponseWriter: w, control: http.NewResponseController(w)}
}

var _ io.ReaderFrom = (*idleWriter)(nil)

// a connection without deadlines has no limit
func (s *idleWriter) extendDeadline() { _ = s.control.SetWriteDeadline(time.Now().Add(idle)) }

func (s *idleWriter) Write(p []byte) (int, error) {
	s.extendDeadline()
	n, err := s.ResponseWriter.Write(p) //nolint:gosec // every route sets a type that is not executed, and nosniff
	s.sent += int64(n)
	return n, err
}

// ReadFrom sends the source in stretches, each as a bounded file that the system sends directly.
func (s *idleWriter) ReadFrom(src io.Reader) (int64, error) {
	bounded, ok := src.(*io.LimitedReader)
	if !ok {
		bounded = &io.LimitedReader{R: src, N: math.MaxInt64}
	}
	var sum int64
	for bounded.N > 0 {
		s.extendDeadline()
		part := &io.LimitedReader{R: bounded.R, N: min(bounded.N, stretch)}
		n, err := io.Copy(s.ResponseWriter, part)
		sum, bounded.N, s.sent = sum+n, bounded.N-n, s.sent+n
		if err != nil || part.N > 0 {
			return sum, err
		}
	}
	return sum, nil
}

// Unwrap returns the underlying writer for http.ResponseController.
func (s *idleWriter) Unwrap() http.ResponseWriter { return s.ResponseWriter }
