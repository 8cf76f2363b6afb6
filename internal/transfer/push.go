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
	// maxPushRounds is how often a push negotiates again when the registry lost parts.
	maxPushRounds = 3
	// commitTimeout bounds a commit, which puts the bytes of all files on stable storage.
	commitTimeout = 30 * time.Minute
)

// Push publishes a version. Files are compressed while they are sent; data that the registry has is not sent.
// An interrupted push is resumed by a call with the same options within a day.
func (c *Client) Push(ctx context.Context, o PushOptions) (_ api.PushResult, err error) {
	p := &push{client: c, opts: o, req: o.Request}
	p.maxRequestBytes.Store(partTargetBytes)
	defer p.close()
	defer func() {
		if err != nil && o.AbandonOnFailure != nil && o.AbandonOnFailure(err) {
			p.abandon(ctx)
		}
	}()
	if err := p.openFiles(); err != nil {
		return api.PushResult{}, err
	}
	for round := 1; ; round++ {
		result, err := p.runRound(ctx)
		if e := registryDiskFull(err); e != nil {
			return result, e // the part that failed does not matter
		}
		if farm.CodeOf(err) == farm.CodeNoParent && p.sendWhole() {
			c.log.Info("parent layer not found in the registry; pushing the complete disk")
			round--
			continue
		}
		if err == nil || farm.CodeOf(err) != farm.CodeConflict || round == maxPushRounds {
			return result, err
		}
		c.log.Debug("push conflict; negotiating again", "round", round, "error", err)
	}
}

// push is one call of Push.
type push struct {
	client   *Client
	opts     PushOptions
	req      api.PushRequest
	sources  []*pushSource
	progress *progressMeter

	session         string       // at the registry; "" before the first negotiation
	peerSums        bool         // the registry wants sums of decoded frames
	maxRequestBytes atomic.Int64 // maximum bytes of frames in one request
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
	err := p.client.doCall(ctx, apiCall{method: http.MethodDelete, path: "/registry/v2/push/" + p.session})
	if err != nil {
		p.client.log.Debug("aborting a push failed", "session", p.session, "error", err)
	}
}

func (p *push) close() {
	for _, f := range p.sources {
		_ = f.close() // only read
	}
}

func (p *push) openFiles() error {
	for _, spec := range p.opts.Files {
		f, err := openPushSource(spec)
		if err != nil {
			return err
		}
		p.sources = append(p.sources, f)
	}
	return p.buildRequest()
}

// buildRequest makes the request from the files.
func (p *push) buildRequest() error {
	p.req.Files = make([]api.PushFile, 0, len(p.sources))
	key := sha256.New()
	host, _ := os.Hostname() // only part of a key
	fmt.Fprintf(key, "%q %q %q\n", host, p.req.ID, p.req.Tag)
	for _, f := range p.sources {
		if err := f.writeResumeKey(key); err != nil {
			return fmt.Errorf("push %s: %w", f.file.Name, err)
		}
		p.req.Files = append(p.req.Files, f.apiFile())
	}
	if p.opts.Request.ResumeKey == "" {
		p.req.ResumeKey = hex.EncodeToString(key.Sum(nil))
	}
	return nil
}

// sendWhole makes the push send all files as a whole; false if it did already.
func (p *push) sendWhole() (changed bool) {
	for _, f := range p.sources {
		changed = f.sendWhole() || changed
	}
	return changed && p.buildRequest() == nil
}

// runRound is one negotiation, the transfer of missing data, and one commit.
func (p *push) runRound(ctx context.Context) (api.PushResult, error) {
	var result api.PushResult
	var s api.PushSession
	err := p.client.doCall(ctx,
		apiCall{method: http.MethodPost, path: "/registry/v2/push", request: p.req, result: &s, idempotent: true})
	if err != nil {
		return result, err
	}
	p.session, p.peerSums = s.Session, s.PeerSums
	if len(s.Files) != len(p.sources) {
		return result, fmt.Errorf("the registry responded for %d of %d files", len(s.Files), len(p.sources))
	}
	var total int64
	for _, f := range p.sources {
		total += f.readBytes
	}
	p.progress = newProgressMeter(p.opts.Progress, total)
	roots, err := p.sendFiles(ctx, s)
	if err != nil {
		return result, err
	}
	if p.opts.BeforePublish != nil {
		if err := p.opts.BeforePublish(); err != nil {
			return result, err
		}
	}
	err = p.client.doCall(ctx, apiCall{
		method: http.MethodPost, path: "/registry/v2/push/" + s.Session + "/commit",
		request: api.PushCommit{Roots: roots},
		result:  &result, idempotent: true, timeout: commitTimeout,
	})
	p.progress.finish()
	if err == nil && p.opts.LayerDigests != nil {
		maps.Copy(p.opts.LayerDigests, roots)
	}
	return result, err
}

// sendFiles sends every file that the registry lacks and returns the digests.
func (p *push) sendFiles(ctx context.Context, s api.PushSession) (map[string]string, error) {
	group, sendCtx := errgroup.WithContext(ctx)
	group.SetLimit(max(1, min(s.Parallel, 16)))
	roots := map[string]string{}
	indexes := map[string]*blob.Index{}
	var err error
	for i, state := range s.Files {
		spec := p.req.Files[i]
		if state.State == api.PushExists {
			roots[spec.Name] = spec.Root
			p.progress.addSkipped(p.sources[i].readBytes)
			continue
		}
		var x *blob.Index
		if x, err = newPartSender(sendCtx, p, p.sources[i], group, state).encodeFile(); err != nil {
			break
		}
		roots[spec.Name], indexes[spec.Name] = x.Digest().String(), x
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
		if err := p.client.putIndex(ctx, s.Session, name, x); err != nil {
			return nil, err
		}
	}
	return roots, nil
}

// indexChunkSize is the number of bytes of an index that one request usually sends: few enough for a connection
// that breaks repeatedly.
const indexChunkSize = 1 << 20

// putIndex sends an index, in chunks if it is long. An interrupted transfer resumes with the chunk that was
// cut.
func (c *Client) putIndex(ctx context.Context, session, name string, x *blob.Index) error {
	raw, off := x.Encoded(), 0
	query := url.Values{"index": {x.Digest().String()}}
	return c.retryWithProgress(ctx, "PUT index of "+name, func() (moved bool, err error) {
		for off < len(raw) {
			piece := raw[off:min(len(raw), off+c.indexChunkBytes)]
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
