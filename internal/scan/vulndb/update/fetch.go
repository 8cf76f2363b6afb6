package update

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/buildyard/buildyard/internal/scan/vulndb/atomicfile"
)

// source is the origin of listings and databases.
type source interface {
	// listing returns the listing, or reports that it has not changed.
	listing(ctx context.Context, known validators) (offer, error)
	// file opens a listed file at an offset, or at 0 when it cannot resume.
	file(ctx context.Context, path string, from int64) (io.ReadCloser, int64, error)
}

var (
	_ source = (*httpListing)(nil)
	_ source = fileListing("")
)

// validators identify the known version of a listing for a server.
type validators struct{ ETag, Modified string }

type offer struct {
	validators
	same bool
	body []byte
}

// open returns the source of a listing.
func open(o Options) (source, error) {
	if o.Listing == "" {
		return nil, errors.New("no listing is set")
	}
	u, err := url.Parse(o.Listing)
	switch {
	case err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "":
		return &httpListing{o, u}, nil
	case err == nil && u.Scheme == "file" && (u.Host == "" || u.Host == "localhost"):
		return fileListing(filepath.FromSlash(u.Path)), nil
	case strings.Contains(o.Listing, "://"):
		return nil, fmt.Errorf("the listing %q is not an http, https or file URL", o.Listing)
	}
	return fileListing(o.Listing), nil
}

// onlySafer refuses redirects from https to another scheme.
func onlySafer(req *http.Request, via []*http.Request) error {
	if len(via) >= 5 {
		return errors.New("more than five redirects")
	}
	if via[len(via)-1].URL.Scheme == "https" && req.URL.Scheme != "https" {
		return errors.New("a redirect leads from https to " + req.URL.Scheme)
	}
	return nil
}

// fileListing is a listing on this machine, by its path.
type fileListing string

func (d fileListing) listing(_ context.Context, _ validators) (offer, error) {
	f, err := os.Open(string(d))
	if err != nil {
		return offer{}, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, listingMost+1))
	if err == nil && len(b) > listingMost {
		err = errors.New("the listing is too long")
	}
	return offer{body: b}, err
}

func (d fileListing) file(_ context.Context, path string, from int64) (io.ReadCloser, int64, error) {
	if !filepath.IsLocal(path) {
		return nil, 0, fmt.Errorf("the listing names %q, which is not below its directory", path)
	}
	f, err := os.Open(filepath.Join(filepath.Dir(string(d)), path))
	if err != nil {
		return nil, 0, err
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = &fs.PathError{Op: "read", Path: path, Err: errors.New("no file")}
	}
	if err == nil {
		_, err = f.Seek(from, io.SeekStart)
	}
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, from, nil
}

// httpListing is a listing on a server.
type httpListing struct {
	o   Options
	url *url.URL
}

func (w *httpListing) listing(ctx context.Context, known validators) (offer, error) {
	head := http.Header{}
	if known.ETag != "" {
		head.Set("If-None-Match", known.ETag)
	}
	if known.Modified != "" {
		head.Set("If-Modified-Since", known.Modified)
	}
	resp, err := w.get(ctx, w.url, head)
	if err != nil {
		return offer{}, err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNotModified && known != (validators{}) {
		return offer{validators: known, same: true}, nil
	}
	if resp.StatusCode != http.StatusOK {
		return offer{}, fmt.Errorf("%s answers %s", w.url.Redacted(), resp.Status)
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, listingMost+1))
	if err == nil && len(b) > listingMost {
		err = errors.New("the listing is too long")
	}
	return offer{validators: validators{resp.Header.Get("ETag"), resp.Header.Get("Last-Modified")}, body: b}, err
}

func (w *httpListing) file(ctx context.Context, path string, from int64) (io.ReadCloser, int64, error) {
	u, err := w.url.Parse(path)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || w.url.Scheme == "https" && u.Scheme != "https" {
		return nil, 0, fmt.Errorf("the listing names %q, which cannot be fetched", path)
	}
	head := http.Header{}
	head.Set("Accept-Encoding", "identity")
	if from > 0 {
		head.Set("Range", "bytes="+strconv.FormatInt(from, 10)+"-")
	}
	resp, err := w.get(ctx, u, head)
	if err != nil {
		return nil, 0, err
	}
	switch {
	case resp.StatusCode == http.StatusOK:
		return resp.Body, 0, nil
	case resp.StatusCode == http.StatusPartialContent &&
		strings.HasPrefix(resp.Header.Get("Content-Range"), fmt.Sprintf("bytes %d-", from)):
		return resp.Body, from, nil
	case resp.StatusCode == http.StatusRequestedRangeNotSatisfiable && from > 0:
		resp.Body.Close()
		return w.file(ctx, path, 0)
	}
	resp.Body.Close()
	return nil, 0, fmt.Errorf("%s answers %s", u.Redacted(), resp.Status)
}

// get sends a request, and fails when the server sends nothing for too long, for the header or for
// the body.
func (w *httpListing) get(ctx context.Context, u *url.URL, head http.Header) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	silent := time.AfterFunc(w.o.Stall, func() {
		cancel(fmt.Errorf("%s has sent nothing for %s", u.Redacted(), w.o.Stall))
	})
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		cancel(err)
		return nil, err
	}
	req.Header = head
	req.Header.Set("User-Agent", "buildyard")
	resp, err := w.o.Client.Do(req)
	if err != nil {
		silent.Stop()
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		cancel(nil)
		return nil, err
	}
	resp.Body = &stallReader{ReadCloser: resp.Body, ctx: ctx, silent: silent, stall: w.o.Stall, cancel: cancel}
	return resp, nil
}

// stallReader is a body whose reads fail when no data comes.
type stallReader struct {
	io.ReadCloser
	ctx    context.Context // that of the body's request
	silent *time.Timer
	stall  time.Duration
	cancel context.CancelCauseFunc
	closed atomic.Bool
}

func (w *stallReader) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	if n > 0 {
		w.silent.Reset(w.stall)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		if cause := context.Cause(w.ctx); cause != nil {
			err = cause
		}
	}
	return n, err
}

func (w *stallReader) Close() error {
	if w.closed.Swap(true) {
		return nil
	}
	w.silent.Stop()
	err := w.ReadCloser.Close()
	w.cancel(nil)
	return err
}

// fetch downloads the listed file into the directory, verifies all of it and makes it the database.
// It resumes a former download of the same listing.
func (p dbLocation) fetch(ctx context.Context, o Options, src source, l Listing) error {
	_, st := p.recall()
	if st.Part.Checksum != l.Checksum || st.Part.Size != l.Size {
		os.Remove(p.part())
	}
	st.Part = l
	if err := writeJSON(p.state(), st); err != nil {
		return err
	}
	f, err := os.OpenFile(p.part(), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	sum, err := p.receive(ctx, o, src, l, f)
	if err != nil {
		return err
	}
	if sum != l.Checksum {
		os.Remove(p.part())
		return fmt.Errorf("%w: the file has %s, the listing says %s", ErrChecksum, sum, l.Checksum)
	}
	info, err := examine(ctx, p.part())
	if err == nil && !info.Built.Equal(l.Built) {
		err = fmt.Errorf("the file is of %s, the listing says %s", info.Built, l.Built)
	}
	if err != nil {
		os.Remove(p.part())
		return err
	}
	return atomicfile.Rename(f, string(p))
}

// receive writes the listed bytes to f and returns their checksum. Bytes already in f are kept if
// the server can resume there.
func (p dbLocation) receive(ctx context.Context, o Options, src source, l Listing, f *os.File) (string, error) {
	h := sha256.New()
	have, err := io.Copy(h, io.LimitReader(f, l.Size))
	if err != nil || have == l.Size {
		return sumText(h.Sum(nil)), errors.Join(err, f.Truncate(l.Size))
	}
	body, from, err := src.file(ctx, l.Path, have)
	if err != nil {
		return "", err
	}
	defer body.Close()
	if from != have {
		h.Reset()
	}
	if _, err := f.Seek(from, io.SeekStart); err != nil {
		return "", err
	}
	out := io.MultiWriter(f, h, &meter{ctx: ctx, report: o.Progress, done: from, total: l.Size})
	n, err := io.Copy(out, io.LimitReader(body, l.Size-from+1))
	switch end := from + n; {
	case err != nil:
		return "", err
	case end < l.Size:
		return "", fmt.Errorf("the file ended after %d of %d bytes: %w", end, l.Size, io.ErrUnexpectedEOF)
	case end > l.Size:
		os.Remove(p.part())
		return "", fmt.Errorf("%w: the file is longer than the %d bytes that the listing says", ErrChecksum, l.Size)
	}
	return sumText(h.Sum(nil)), errors.Join(f.Truncate(l.Size), f.Sync())
}

// meter reports how much was received, and ends when the context does.
type meter struct {
	ctx         context.Context // it lives as long as one call of receive
	report      func(done, total int64)
	done, total int64
}

func (m *meter) Write(b []byte) (int, error) {
	m.done += int64(len(b))
	m.report(m.done, m.total)
	return len(b), m.ctx.Err()
}
