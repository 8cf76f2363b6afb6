package update

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/release"
	"github.com/buildyard/buildyard/internal/retry"
)

const (
	stillTime    = time.Minute      // without a byte, after which a connection is aborted
	stallTimeout = 10 * time.Minute // without progress, after which a download is aborted
	pauseFirst   = time.Second
	pauseMost    = 30 * time.Second
)

// packageSource is where packages are downloaded from.
type packageSource struct {
	transport      http.RoundTripper
	controllerURL  string // URL of the controller
	nodeID         string
	nodeCredential string // of the node
}

// finalError is an error after which a download is not retried.
type finalError struct{ error }

func (e finalError) Unwrap() error { return e.error }

// download downloads a package into a file, resuming an earlier attempt, and verifies its size and
// digest. told is called with the number of bytes that are present.
func (s packageSource) download(ctx context.Context, p api.AgentPackage, file string, onProgress func(int64)) error {
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	have, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	moved, pause := time.Now(), retry.New(pauseFirst, pauseMost)
	for have < p.Size {
		onProgress(have)
		n, err := s.downloadPart(ctx, p, f, have, onProgress)
		have += n
		final := finalError{}
		switch {
		case errors.As(err, &final):
			return final.error
		case n > 0:
			moved = time.Now()
			pause.Reset()
		case time.Since(moved) >= stallTimeout:
			return fmt.Errorf("download of %s stalled: %w", p.Name, err)
		}
		if have < p.Size {
			if err := pause.Sleep(ctx); err != nil {
				return err
			}
		}
	}
	return s.verifyFile(p, f, file)
}

// verifyFile removes a file that does not match the signed statement, so that the next attempt starts
// again.
func (s packageSource) verifyFile(p api.AgentPackage, f *os.File, file string) error {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	size, sum, err := release.Digest(f)
	if err != nil {
		return err
	}
	if size != p.Size || sum != p.SHA256 {
		return errors.Join(fmt.Errorf("%s does not match its signature: sha256 is %s, want %s", p.Name,
			sum, p.SHA256), os.Remove(file))
	}
	return f.Sync()
}

// downloadPart downloads from an offset to the end, or until the connection breaks.
func (s packageSource) downloadPart(
	ctx context.Context, p api.AgentPackage, f *os.File, at int64, onProgress func(int64),
) (n int64, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	still := time.AfterFunc(stillTime, cancel)
	defer still.Stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet,
		strings.TrimRight(s.controllerURL, "/")+api.PathPackages+"/"+
			p.Name, nil)
	if err != nil {
		return 0, finalError{err}
	}
	req.SetBasicAuth(s.nodeID, s.nodeCredential)
	req.Header.Set("Accept-Encoding", "identity")
	req.Header.Set("Range", "bytes="+strconv.FormatInt(at, 10)+"-")
	req.Header.Set("If-Match", `"`+p.SHA256+`"`)
	resp, err := s.transport.RoundTrip(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusPartialContent {
		return 0, downloadError(resp)
	}
	if want := fmt.Sprintf("bytes %d-", at); !strings.HasPrefix(resp.Header.Get("Content-Range"), want) {
		return 0, finalError{errors.New("the controller returned another range than requested")}
	}
	out := io.NewOffsetWriter(f, at)
	body := &progressReader{src: io.LimitReader(resp.Body, p.Size-at), onRead: func(n int64) {
		still.Reset(stillTime)
		onProgress(at + n)
	}}
	return io.Copy(out, body)
}

// downloadError explains a response that is not a part of the file. Only that of a controller that is
// busy or unavailable is worth a retry.
func downloadError(resp *http.Response) error {
	said, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	err := fmt.Errorf("the controller responded %s: %s", resp.Status, strings.TrimSpace(string(said)))
	if resp.StatusCode >= http.StatusInternalServerError || resp.StatusCode == http.StatusTooManyRequests {
		return err
	}
	if resp.StatusCode == http.StatusPreconditionFailed {
		err = errors.New("the controller now offers another package")
	}
	return finalError{err}
}

// progressReader is a body that reports the bytes read.
type progressReader struct {
	src       io.Reader
	readBytes int64
	onRead    func(int64)
}

func (m *progressReader) Read(b []byte) (int, error) {
	n, err := m.src.Read(b)
	if n > 0 {
		m.readBytes += int64(n)
		m.onRead(m.readBytes)
	}
	return n, err
}
