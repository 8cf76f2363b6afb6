package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"

	"golang.org/x/sync/errgroup"

	"github.com/buildyard/buildyard/internal/blob"
)

const (
	connections = 4        // of our client, too
	request     = 16 << 20 // bytes that our client asks for at a time
	behind      = 4 << 20  // written before the kernel is asked to begin putting it on disk
)

// copyRanges copies so many bytes of an address into a file: each connection one range,
// in place, and all of it on stable storage at the end. Every so many bytes (0: never) the
// kernel is asked to begin putting what was written on disk.
func copyRanges(ctx context.Context, address string, length int64, path string, every int64) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	group, ctx := errgroup.WithContext(ctx)
	share := (length + connections - 1) / connections
	for i := range int64(connections) {
		off := i * share
		n := min(share, length-off)
		group.Go(func() error {
			return ranged(ctx, address, off, n, &placed{f: f, off: off, begun: off, every: every})
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return f.Sync()
}

// placed writes at its place of a file.
type placed struct {
	f          *os.File
	off, begun int64
	every      int64 // bytes written before the kernel is asked to begin; 0: it is not asked
}

func (p *placed) Write(b []byte) (int, error) {
	n, err := p.f.WriteAt(b, p.off)
	p.off += int64(n)
	if p.every > 0 && p.off-p.begun >= p.every {
		blob.StartWriteback(p.f, p.begun, p.off-p.begun)
		p.begun = p.off
	}
	return n, err
}

// readRanges reads so many bytes of an address, times over, in the requests of a pull.
func readRanges(ctx context.Context, address string, length int64, times int) error {
	type piece struct{ off, n int64 }
	pieces := make(chan piece)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		defer close(pieces)
		for range times {
			for off := int64(0); off < length; off += request {
				select {
				case pieces <- piece{off, min(request, length-off)}:
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}
		}
		return nil
	})
	for range connections {
		group.Go(func() error {
			for p := range pieces {
				if err := ranged(ctx, address, p.off, p.n, io.Discard); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// ranged reads one range.
func ranged(ctx context.Context, address string, off, length int64, to io.Writer) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", off, off+length-1))
	return fetch(req, http.StatusPartialContent, length, to)
}

// fetch reads the body of an answer; to sees it 1 MiB at a time.
func fetch(req *http.Request, status int, length int64, to io.Writer) error {
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != status {
		return fmt.Errorf("%s answers %s", req.URL, resp.Status)
	}
	n, err := io.CopyBuffer(struct{ io.Writer }{to}, resp.Body, make([]byte, 1<<20))
	if err == nil && n != length {
		err = fmt.Errorf("%s gives %d of %d bytes", req.URL, n, length)
	}
	return err
}

var client = &http.Client{Transport: &http.Transport{
	MaxIdleConnsPerHost: connections, DisableCompression: true, ReadBufferSize: 256 << 10,
}}

// copyNaive does what a simple program does: one request, io.Copy, sync.
func copyNaive(ctx context.Context, address, path string) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", address, resp.Status)
	}
	if _, err := io.Copy(f, resp.Body); err != nil {
		return err
	}
	return f.Sync()
}
