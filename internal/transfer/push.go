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
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/farm"
)

const (
	// pushRounds is how often a push negotiates again when the registry lost parts.
	pushRounds = 3
	// commitTimeout bounds a commit, which puts the bytes of all files on stable storage.
	commitTimeout = 30 * time.Minute
)

// Push publishes a version. Files are compressed while they are sent; data that the registry has is not sent.
// An interrupted push is resumed by a call with the same options within a day.
func (c *Client) Push(ctx context.Context, o PushOptions) (_ api.PushResult, err error) {
	p := &push{c: c, o: o, req: o.Request}
	p.piece.Store(partTarget)
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
			return result, e // the part that failed does not matter
		}
		if farm.CodeOf(err) == farm.CodeNoParent && p.forgo() {
			c.log.Info("parent layer not found in the registry; pushing the complete disk")
			round--
			continue
		}
		if err == nil || farm.CodeOf(err) != farm.CodeConflict || round == pushRounds {
			return result, err
		}
		c.log.Debug("push conflict; negotiating again", "round", round, "error", err)
	}
}

// push is one call of Push.
type push struct {
	c     *Client
	o     PushOptions
	req   api.PushRequest
	files []*source
	meter *meter

	session string       // at the registry; "" before the first negotiation
	piece   atomic.Int64 // maximum bytes of frames in one request
}

// abandonTimeout bounds the request that abandons a push. The registry removes an idle push automatically if
// the request does not arrive.
const abandonTimeout = 5 * time.Second

// abandon ends the session, even if the context of the push has ended.
func (p *push) abandon(ctx context.Context) {
	if p.session == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abandonTimeout)
	defer cancel()
	err := p.c.call(ctx, call{method: http.MethodDelete, path: "/registry/v2/push/" + p.session})
	if err != nil {
		p.c.log.Debug("aborting a push failed", "session", p.session, "error", err)
	}
}

func (p *push) close() {
	for _, f := range p.files {
		_ = f.close() // only read
	}
}

func (p *push) openFiles() error {
	for _, spec := range p.o.Files {
		f, err := openSource(spec)
		if err != nil {
			return err
		}
		p.files = append(p.files, f)
	}
	return p.announce()
}

// announce makes the request from the files.
func (p *push) announce() error {
	p.req.Files = make([]api.PushFile, 0, len(p.files))
	key := sha256.New()
	host, _ := os.Hostname() // only part of a key
	fmt.Fprintf(key, "%q %q %q\n", host, p.req.ID, p.req.Tag)
	for _, f := range p.files {
		if err := f.describe(key); err != nil {
			return fmt.Errorf("push %s: %w", f.spec.Name, err)
		}
		p.req.Files = append(p.req.Files, f.announce())
	}
	if p.o.Request.ResumeKey == "" {
		p.req.ResumeKey = hex.EncodeToString(key.Sum(nil))
	}
	return nil
}

// forgo makes the push send all files as a whole; false if it did already.
func (p *push) forgo() (changed bool) {
	for _, f := range p.files {
		changed = f.forgo() || changed
	}
	return changed && p.announce() == nil
}

// round is one negotiation, the transfer of missing data, and one commit.
func (p *push) round(ctx context.Context) (api.PushResult, error) {
	var result api.PushResult
	var s api.PushSession
	err := p.c.call(ctx, call{method: http.MethodPost, path: "/registry/v2/push", in: p.req, out: &s, repeatable: true})
	if err != nil {
		return result, err
	}
	p.session = s.Session
	if len(s.Files) != len(p.files) {
		return result, fmt.Errorf("the registry responded for %d of %d files", len(s.Files), len(p.files))
	}
	var total int64
	for _, f := range p.files {
		total += f.total
	}
	p.meter = newMeter(p.o.Progress, total)
	roots, err := p.send(ctx, s)
	if err != nil {
		return result, err
	}
	if p.o.Ready != nil {
		if err := p.o.Ready(); err != nil {
			return result, err
		}
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

// send sends every file that the registry lacks and returns the digests.
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
			p.meter.skip(p.files[i].total)
			continue
		}
		var x *blob.Index
		if x, err = newParts(p, p.files[i], group, sendCtx, state).encode(); err != nil {
			break
		}
		roots[spec.Name], indexes[spec.Name] = x.Root().String(), x
	}
	// A part that failed cancels the encoding, so its error is the root cause.
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

// indexPiece is the number of bytes of an index that one request usually sends: few enough for a connection
// that breaks repeatedly.
const indexPiece = 1 << 20

// putIndex sends an index, in chunks if it is long. An interrupted transfer resumes with the chunk that was
// cut.
func (c *Client) putIndex(ctx context.Context, session, name string, x *blob.Index) error {
	raw, off := x.Bytes(), 0
	query := url.Values{"index": {x.Root().String()}}
	return c.retryProgress(ctx, "PUT index of "+name, func() (moved bool, err error) {
		for off < len(raw) {
			piece := raw[off:min(len(raw), off+c.piece)]
			if len(piece) < len(raw) {
				query.Set("off", strconv.Itoa(off))
				query.Set("of", strconv.Itoa(len(raw)))
			}
			if err := c.putOnce(ctx, c.fileURL(session, name, query), [][]byte{piece}); err != nil {
				return moved, err
			}
			off, moved = off+len(piece), true
		}
		return moved, nil
	})
}
