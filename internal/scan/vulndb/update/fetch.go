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

	"github.com/buildyard/buildyard/internal/scan/vulndb/atomicfile"
	"github.com/buildyard/buildyard/internal/scan/vulndb/download"
)

// listingSource is the origin of listings and databases.
type listingSource interface {
	// fetchListing returns the listing, or reports that it has not changed.
	fetchListing(ctx context.Context, known cacheValidators) (listingResponse, error)
	// openFile opens a listed file at an offset, or at 0 when it cannot resume.
	openFile(ctx context.Context, path string, from int64) (io.ReadCloser, int64, error)
}

var (
	_ listingSource = (*httpListing)(nil)
	_ listingSource = fileListing("")
)

// cacheValidators identify the known version of a listing for a server.
type cacheValidators struct{ ETag, Modified string }

type listingResponse struct {
	cacheValidators
	notModified bool
	body        []byte
}

// openSource returns the source of a listing.
func openSource(o Options) (listingSource, error) {
	if o.Listing == "" {
		return nil, errors.New("the URL of the listing is not set")
	}
	u, err := url.Parse(o.Listing)
	switch {
	case err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "":
		return &httpListing{o, u}, nil
	case err == nil && u.Scheme == "file" && (u.Host == "" || u.Host == "localhost"):
		return fileListing(filepath.FromSlash(u.Path)), nil
	case strings.Contains(o.Listing, "://"):
		return nil, fmt.Errorf("the listing URL %q is not an http, https or file URL", o.Listing)
	}
	return fileListing(o.Listing), nil
}

// refuseDowngrade refuses redirects from https to another scheme.
func refuseDowngrade(req *http.Request, via []*http.Request) error {
	if len(via) >= 5 {
		return errors.New("the server redirected more than five times")
	}
	if via[len(via)-1].URL.Scheme == "https" && req.URL.Scheme != "https" {
		return errors.New("a redirect leads from https to " + req.URL.Scheme)
	}
	return nil
}

// fileListing is a listing on this machine, by its path.
type fileListing string

func (d fileListing) fetchListing(_ context.Context, _ cacheValidators) (listingResponse, error) {
	f, err := os.Open(string(d))
	if err != nil {
		return listingResponse{}, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxListingBytes+1))
	if err == nil && len(b) > maxListingBytes {
		err = errors.New("the listing has too many bytes")
	}
	return listingResponse{body: b}, err
}

func (d fileListing) openFile(_ context.Context, path string, from int64) (io.ReadCloser, int64, error) {
	if !filepath.IsLocal(path) {
		return nil, 0, fmt.Errorf("the listing names the file %q, which is not in its directory", path)
	}
	f, err := os.Open(filepath.Join(filepath.Dir(string(d)), path))
	if err != nil {
		return nil, 0, err
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = &fs.PathError{Op: "read", Path: path, Err: errors.New("not a regular file")}
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
	opts Options
	url  *url.URL
}

func (w *httpListing) fetchListing(ctx context.Context, known cacheValidators) (listingResponse, error) {
	head := http.Header{}
	if known.ETag != "" {
		head.Set("If-None-Match", known.ETag)
	}
	if known.Modified != "" {
		head.Set("If-Modified-Since", known.Modified)
	}
	resp, err := w.get(ctx, w.url, head)
	if err != nil {
		return listingResponse{}, err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNotModified && known != (cacheValidators{}) {
		return listingResponse{cacheValidators: known, notModified: true}, nil
	}
	if resp.StatusCode != http.StatusOK {
		return listingResponse{}, fmt.Errorf("%s answers %s", w.url.Redacted(), resp.Status)
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxListingBytes+1))
	if err == nil && len(b) > maxListingBytes {
		err = errors.New("the listing has too many bytes")
	}
	return listingResponse{
		cacheValidators: cacheValidators{resp.Header.Get("ETag"), resp.Header.Get("Last-Modified")},
		body:            b,
	}, err
}

func (w *httpListing) openFile(ctx context.Context, path string, from int64) (io.ReadCloser, int64, error) {
	u, err := w.url.Parse(path)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || w.url.Scheme == "https" && u.Scheme != "https" {
		return nil, 0, fmt.Errorf("the listing names the file %q, which has no http or https URL", path)
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
		return w.openFile(ctx, path, 0)
	}
	resp.Body.Close()
	return nil, 0, fmt.Errorf("%s answers %s", u.Redacted(), resp.Status)
}

// get sends a request, and fails when the server sends nothing for too long.
func (w *httpListing) get(ctx context.Context, u *url.URL, head http.Header) (*http.Response, error) {
	return download.Get(ctx, w.opts.Client, u.String(), head, w.opts.StallTimeout)
}

// downloadDatabase downloads the listed file into the directory, verifies all of it and makes it the database.
// It resumes a former download of the same listing.
func (p dbLocation) downloadDatabase(ctx context.Context, o Options, src listingSource, l Listing) error {
	_, st := p.loadStatus()
	if st.PartListing.Checksum != l.Checksum || st.PartListing.Size != l.Size {
		os.Remove(p.partPath())
	}
	st.PartListing = l
	if err := writeJSON(p.statePath(), st); err != nil {
		return err
	}
	f, err := os.OpenFile(p.partPath(), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	sum, err := p.download(ctx, o, src, l, f)
	if err != nil {
		return err
	}
	if sum != l.Checksum {
		os.Remove(p.partPath())
		return fmt.Errorf("%w: the file has %s, the listing has %s", ErrChecksumMismatch, sum, l.Checksum)
	}
	info, err := verifyDatabase(ctx, p.partPath())
	if err == nil && !info.Built.Equal(l.Built) {
		err = fmt.Errorf("the database was built at %s, but its listing has the build time %s", info.Built, l.Built)
	}
	if err != nil {
		os.Remove(p.partPath())
		return err
	}
	return atomicfile.Rename(f, string(p))
}

// download writes the listed bytes to f and returns their checksum. Bytes already in f are kept if
// the server can resume there.
func (p dbLocation) download(ctx context.Context, o Options, src listingSource, l Listing, f *os.File) (string, error) {
	h := sha256.New()
	have, err := io.Copy(h, io.LimitReader(f, l.Size))
	if err != nil || have == l.Size {
		return formatChecksum(h.Sum(nil)), errors.Join(err, f.Truncate(l.Size))
	}
	body, from, err := src.openFile(ctx, l.Path, have)
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
	out := io.MultiWriter(f, h, &progressWriter{ctx: ctx, report: o.Progress, receivedBytes: from, totalBytes: l.Size})
	n, err := io.Copy(out, io.LimitReader(body, l.Size-from+1))
	switch end := from + n; {
	case err != nil:
		return "", err
	case end < l.Size:
		return "", fmt.Errorf("the download was interrupted after %d of %d bytes: %w", end, l.Size, io.ErrUnexpectedEOF)
	case end > l.Size:
		os.Remove(p.partPath())
		return "", fmt.Errorf("%w: the file has more than the %d bytes of the listing", ErrChecksumMismatch,
			l.Size)
	}
	return formatChecksum(h.Sum(nil)), errors.Join(f.Truncate(l.Size), f.Sync())
}

// progressWriter reports how much was received, and ends when the context does.
type progressWriter struct {
	ctx                       context.Context // it lives as long as one call of receive
	report                    func(done, total int64)
	receivedBytes, totalBytes int64
}

func (m *progressWriter) Write(b []byte) (int, error) {
	m.receivedBytes += int64(len(b))
	m.report(m.receivedBytes, m.totalBytes)
	return len(b), m.ctx.Err()
}
