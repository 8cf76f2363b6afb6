package transfer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/farm"
)

const (
	// pushRounds is how often a push negotiates anew when the registry lost parts.
	pushRounds = 3
	// commitTimeout bounds a commit, which puts the bytes of all files on stable storage.
	commitTimeout = 30 * time.Minute
)

// Push publishes a version. Files are compressed while they are sent; what the registry holds already is not
// sent. A push that was cut is gone on with when it is called again with the same options within a day.
func (c *Client) Push(ctx context.Context, o PushOptions) (_ api.PushResult, err error) {
	p := &push{c: c, o: o, req: o.Request}
	defer p.close()
	defer func() {
		if err != nil && o.Abandon != nil && o.Abandon(err) {
			p.abandon(ctx)
		}
	}()
	if err := p.openFiles(); err != nil {
		return api.PushResult{}, err
	}
	for round := 1; ; round++ {
		result, err := p.round(ctx)
		if e := diskFull(err); e != nil {
			return result, e // whichever part it was does not matter
		}
		if err == nil || farm.CodeOf(err) != farm.CodeConflict || round == pushRounds {
			return result, err
		}
		c.log.Debug("push negotiates anew", "round", round, "error", err)
	}
}

// push is one call of Push.
type push struct {
	c     *Client
	o     PushOptions
	req   api.PushRequest
	files []*os.File
	meter *meter

	session string // at the registry; "" before the first negotiation
}

// abandonTimeout bounds what is done about a push that nobody wants any more; a
// registry that does not hear of it forgets it by itself.
const abandonTimeout = 5 * time.Second

// abandon ends the session, also when it was its context's end that ended the push.
func (p *push) abandon(ctx context.Context) {
	if p.session == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abandonTimeout)
	defer cancel()
	err := p.c.call(ctx, call{method: http.MethodDelete, path: "/registry/v2/push/" + p.session})
	if err != nil {
		p.c.log.Debug("push could not be abandoned", "session", p.session, "error", err)
	}
}

func (p *push) close() {
	for _, f := range p.files {
		_ = f.Close() // only read
	}
}

func (p *push) openFiles() error {
	p.req.Files = make([]api.PushFile, 0, len(p.o.Files))
	key := sha256.New()
	host, _ := os.Hostname() // only part of a key
	fmt.Fprintf(key, "%q %q %q\n", host, p.req.ID, p.req.Tag)
	for _, spec := range p.o.Files {
		f, err := os.Open(spec.Path)
		if err != nil {
			return fmt.Errorf("push: %w", err)
		}
		p.files = append(p.files, f)
		st, err := f.Stat()
		if err != nil {
			return fmt.Errorf("push: %w", err)
		}
		if !st.Mode().IsRegular() {
			return farm.Refused("%s is not a regular file", spec.Path)
		}
		path, err := filepath.Abs(spec.Path)
		if err != nil {
			return fmt.Errorf("push: %w", err)
		}
		fmt.Fprintf(key, "%q %d %d\n", path, st.Size(), st.ModTime().UnixNano())
		p.req.Files = append(p.req.Files, api.PushFile{Name: spec.Name, Kind: spec.Kind, Format: spec.Format, Size: st.Size(), Root: spec.Root})
	}
	if p.req.ResumeKey == "" {
		p.req.ResumeKey = hex.EncodeToString(key.Sum(nil))
	}
	return nil
}

// round is one negotiation, the sending of what is missing, and one commit.
func (p *push) round(ctx context.Context) (api.PushResult, error) {
	var result api.PushResult
	var s api.PushSession
	err := p.c.call(ctx, call{method: http.MethodPost, path: "/registry/v2/push", in: p.req, out: &s, repeatable: true})
	if err != nil {
		return result, err
	}
	p.session = s.Session
	if len(s.Files) != len(p.files) {
		return result, fmt.Errorf("the registry answered for %d of %d files", len(s.Files), len(p.files))
	}
	var total int64
	for _, f := range p.req.Files {
		total += f.Size
	}
	p.meter = newMeter(p.o.Progress, total)
	roots, err := p.send(ctx, s)
	if err != nil {
		return result, err
	}
	err = p.c.call(ctx, call{
		method: http.MethodPost, path: "/registry/v2/push/" + s.Session + "/commit", in: api.PushCommit{Roots: roots},
		out: &result, repeatable: true, timeout: commitTimeout,
	})
	p.meter.finish()
	if err == nil && p.o.Roots != nil {
		maps.Copy(p.o.Roots, roots)
	}
	return result, err
}

// send brings the registry to hold every file and gives the roots.
func (p *push) send(ctx context.Context, s api.PushSession) (map[string]string, error) {
	group, sendCtx := errgroup.WithContext(ctx)
	group.SetLimit(max(1, min(s.Parallel, 16)))
	roots := map[string]string{}
	indexes := map[string]*blob.Index{}
	var err error
	for i, state := range s.Files {
		spec := p.req.Files[i]
		if state.State == api.PushExists {
			roots[spec.Name] = spec.Root
			p.meter.skip(spec.Size)
			continue
		}
		parts := newParts(p, group, sendCtx, s.Session, state)
		var x *blob.Index
		if x, err = parts.encode(p.files[i], spec); err != nil {
			break
		}
		roots[spec.Name], indexes[spec.Name] = x.Root().String(), x
	}
	// A part that failed cancels the encoding, so its error is the one that says why.
	if waitErr := group.Wait(); waitErr != nil {
		err = waitErr
	}
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, err
	}
	for name, x := range indexes {
		if err := p.c.putIndex(ctx, s.Session, name, x); err != nil {
			return nil, err
		}
	}
	return roots, nil
}

func (c *Client) putIndex(ctx context.Context, session, name string, x *blob.Index) error {
	return c.put(ctx, session, name, url.Values{"index": {x.Root().String()}}, x.Bytes())
}

// kindOf says how a file becomes a layer.
func kindOf(f api.PushFile) blob.Kind {
	switch {
	case f.Kind == api.FileState:
		return blob.KindState
	case f.Kind == api.FileDisk && f.Format == "raw":
		return blob.KindDisk
	default:
		return blob.KindFile
	}
}
