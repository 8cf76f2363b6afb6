package crash

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/transfer"
	"github.com/buildyard/buildyard/test/rig"
)

// flipsEach is the number of places that are tried of each kind.
const flipsEach = 8

// flips flips bits of what is pushed, of what is pulled, and of what is in the storage.
func (w *walk) flips(ctx context.Context) error {
	op := slices.IndexFunc(operations, func(op operation) bool { return op.want == chainState })
	dir := filepath.Join(w.Dir, "flips")
	f := &flipper{walk: w, base: filepath.Join(dir, "storage"), dir: dir}
	for _, kind := range []struct {
		name string
		try  func(context.Context, *Flip) error
	}{{"pushed", f.pushed}, {"pulled", f.pulled}, {"at rest", f.atRest}} {
		row := Flip{Name: kind.name}
		for range flipsEach {
			if err := os.CopyFS(f.base, os.DirFS(w.snapshot(op+1))); err != nil {
				return err
			}
			f.at = w.Rand.Float64()
			row.Tried++
			if err := kind.try(ctx, &row); err != nil {
				return fmt.Errorf("a flipped bit, %s: %w", kind.name, err)
			}
			if err := os.RemoveAll(f.base); err != nil {
				return err
			}
		}
		w.report.Flips = append(w.report.Flips, row)
	}
	return nil
}

// flipper damages one bit of the bytes that it transfers, or of a file.
type flipper struct {
	*walk
	base, dir string
	at        float64 // place in what is damaged, 0 to 1
}

// carries reports whether a request moves layers.
func carries(r *http.Request) bool {
	return r.Method == http.MethodPut || strings.HasPrefix(r.URL.Path, "/registry/v2/blob/")
}

// proxy stands between a client and a registry and damages the first so many bodies that move layers.
func (f *flipper) proxy(
	ctx context.Context, address string, times int64,
) (client *transfer.Client, stop func() error, err error) {
	target, err := url.Parse(address)
	if err != nil {
		return nil, nil, err
	}
	var left atomic.Int64
	left.Store(times)
	damage := func(body io.ReadCloser, size int64) io.ReadCloser {
		if size <= 0 || left.Add(-1) < 0 {
			return body
		}
		return FlipBit(body, int64(f.at*float64(size)))
	}
	p := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		if r.Out.Method == http.MethodPut {
			r.Out.Body = damage(r.Out.Body, r.Out.ContentLength)
		}
	}}
	p.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // clients that refuse what they get hang up
	p.ModifyResponse = func(r *http.Response) error {
		if r.Request.Method == http.MethodGet && carries(r.Request) {
			r.Body = damage(r.Body, r.ContentLength)
		}
		return nil
	}
	address, server, err := rig.Serve(ctx, p)
	if err != nil {
		return nil, nil, err
	}
	client, err = transfer.New(transfer.Options{BaseURL: address, MaxAttempts: 2})
	return client, server.Close, err
}

// FlipBit returns a body that flips a bit of the byte at a place.
func FlipBit(body io.ReadCloser, at int64) io.ReadCloser { return &flipping{body, at} }

// flipping flips a bit of the byte at a place.
type flipping struct {
	io.ReadCloser
	at int64
}

func (f *flipping) Read(p []byte) (int, error) {
	n, err := f.ReadCloser.Read(p)
	if f.at >= 0 && f.at < int64(n) {
		p[f.at] ^= 0x10
	}
	f.at -= int64(n)
	return n, err
}

// always is more bodies than a transfer has.
const always = 1 << 30

// pushed damages what is sent: every time, and only the first time.
func (f *flipper) pushed(ctx context.Context, row *Flip) error {
	return f.served(ctx, launch{}, func(s *server) error {
		err := f.through(ctx, s, always, func(c *transfer.Client) error { return f.push(ctx, c, "v9") })
		state, stateErr := s.state(ctx)
		if stateErr != nil {
			return stateErr
		}
		if err == nil || state != chainState {
			row.Taken++
			f.report.problem("a flipped bit, pushed", "it was taken: %v, %s", err, state)
			return nil
		}
		row.Refused++
		if err := f.through(ctx, s, 1, func(c *transfer.Client) error { return f.push(ctx, c, "v9") }); err != nil {
			return fmt.Errorf("what was damaged once cannot be sent again: %w", err)
		}
		if err := f.pull(ctx, s.client, "v9", f.dir); err != nil {
			return err
		}
		row.Healed++
		return nil
	})
}

// pulled damages what is fetched of a chain: every time, and only the first time.
func (f *flipper) pulled(ctx context.Context, row *Flip) error {
	return f.served(ctx, launch{}, func(s *server) error {
		err := f.through(ctx, s, always, func(c *transfer.Client) error { return f.pull(ctx, c, "v7", f.dir) })
		if err == nil || errors.Is(err, errOther) {
			row.Taken++
			f.report.problem("a flipped bit, pulled", "it was taken: %v", err)
			return nil
		}
		row.Refused++
		if err := f.through(ctx, s, 1,
			func(c *transfer.Client) error { return f.pull(ctx, c, "v7", f.dir) }); err != nil {
			return fmt.Errorf("what was damaged once cannot be fetched again: %w", err)
		}
		row.Healed++
		return nil
	})
}

// atRest damages a layer in the storage: the verification in the background finds it, and the version is refused.
func (f *flipper) atRest(ctx context.Context, row *Flip) error {
	path := filepath.Join(f.base, "images_dir", f.root(versions["v7"].parent)+".ank")
	if err := f.damageFile(path); err != nil {
		return err
	}
	return f.served(ctx, launch{scrub: true}, func(s *server) error {
		if err := awaitScrub(ctx, f.walk, s); err != nil {
			return err
		}
		err := f.pull(ctx, s.client, "v7", f.dir)
		status, statusErr := s.client.Status(ctx)
		if statusErr != nil {
			return statusErr
		}
		listed := slices.ContainsFunc(status.Damaged, func(d api.RegistryDamage) bool { return d.ID == template })
		if err == nil || errors.Is(err, errOther) || !listed {
			row.Taken++
			f.report.problem("a flipped bit, at rest", "pulled: %v, listed as damaged: %v", err, listed)
			return nil
		}
		row.Refused++
		return nil
	})
}

// damageFile flips a bit of the frames of a layer, which come first.
func (f *flipper) damageFile(path string) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	raw[int(f.at*sourceSize/4)] ^= 0x10
	return os.WriteFile(path, raw, 0o600)
}

// served does something with a registry.
func (f *flipper) served(ctx context.Context, l launch, do func(*server) error) error {
	s, err := f.start(ctx, f.base, l)
	if err == nil {
		err = do(s)
	}
	if s != nil {
		err = errors.Join(err, s.end())
	}
	return err
}

// through does something through a proxy that damages so many bodies.
func (f *flipper) through(ctx context.Context, s *server, times int64, do func(*transfer.Client) error) error {
	client, stop, err := f.proxy(ctx, s.address, times)
	if err != nil {
		return err
	}
	err = do(client)
	client.Close()
	return errors.Join(err, stop())
}
