package download

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/buildyard/buildyard/internal/bytesize"
)

// Validators identify a version of a file for its server. The zero value is none.
type Validators struct {
	ETag     string `json:"etag,omitempty"`
	Modified string `json:"last-modified,omitempty"`
}

// Request names a file.
type Request struct {
	URL    string
	Header http.Header // additional ones, such as a key; nil is none
	Known  Validators  // of the version that the caller has
	// Part is the path of the received bytes. A failed download leaves them there, with their state in a file next
	// to it, and the next one of the same URL resumes.
	Part     string
	MaxBytes int64
	Gzip     bool // the server may compress the file
	// ForbiddenIsBusy is set for servers that answer 403 to requests which come too often.
	ForbiddenIsBusy bool
	Wait            func(context.Context) error // before each attempt, for servers with a limit; nil is none
	Progress        func(done, total int64)     // total is -1 when it is unknown; nil is none
}

// Response is about a file that is complete in the part file, unless it is not modified.
type Response struct {
	Validators
	NotModified bool
	Gzipped     bool // the server compressed it
}

// Client fetches files. The zero value is ready.
type Client struct {
	HTTP         *http.Client  // its CheckRedirect is replaced; nil is the default client
	StallTimeout time.Duration // for a server that sends nothing; 0 is 60 s
	FirstDelay   time.Duration // before the second attempt, doubled for each further one; 0 is 1 s
	Timeout      time.Duration // for all attempts of a file; 0 is an hour, and its largest size at 200 KiB/s
}

const (
	defaultStallTimeout = 60 * time.Second
	defaultFirstDelay   = time.Second
	maxDelay            = time.Minute
	maxRetryAfter       = 10 * time.Minute // a server that asks for more is not waited for

	defaultTimeout = time.Hour
	minRate        = 200 << 10 // bytes in a second

	maxFailures = 5  // in a row, without any new data
	maxAttempts = 50 // in all
)

// StatusError is a response with an unexpected status.
type StatusError struct {
	Code       int
	Status     string
	retryAfter time.Duration
}

func (e *StatusError) Error() string { return "the server answers " + e.Status }

// Fetch fetches a file into its part file. When the context ends it returns the cause.
func (c *Client) Fetch(ctx context.Context, q Request) (Response, error) {
	u, err := url.Parse(q.URL)
	if err == nil {
		err = CheckURL(u)
	}
	if err != nil {
		return Response{}, err
	}
	ctx, cancel := c.withTimeout(ctx, q)
	defer cancel()
	s := c.newSchedule()
	for {
		before := partSize(q.Part)
		r, err := c.attempt(ctx, q)
		if err == nil && r.NotModified {
			err = Discard(q.Part)
		}
		if err == nil {
			return r, nil
		}
		if ctx.Err() != nil {
			return Response{}, context.Cause(ctx)
		}
		err = s.next(ctx, q, err, partSize(q.Part) > before)
		if ctx.Err() != nil {
			return Response{}, context.Cause(ctx)
		}
		if err != nil {
			return Response{}, fmt.Errorf("get %s: %w", u.Redacted(), err)
		}
	}
}

// withTimeout bounds the time that a server which sends a little now and then can take.
func (c *Client) withTimeout(ctx context.Context, q Request) (context.Context, context.CancelFunc) {
	limit := c.Timeout
	if limit == 0 {
		limit = defaultTimeout + time.Duration(q.MaxBytes/minRate)*time.Second
	}
	return context.WithTimeoutCause(ctx, limit, fmt.Errorf("get %s: the download took longer than %s", q.URL, limit))
}

// attempt sends one request and receives the rest of the file.
func (c *Client) attempt(ctx context.Context, q Request) (Response, error) {
	part, err := openPart(q)
	if err != nil {
		return Response{}, err
	}
	defer part.Close()
	if part.isComplete() {
		return part.response(), part.checkSum()
	}
	if q.Wait != nil {
		if err := q.Wait(ctx); err != nil {
			return Response{}, err
		}
	}
	client := http.Client{}
	if c.HTTP != nil {
		client = *c.HTTP
	}
	client.CheckRedirect = checkRedirect
	stall := c.StallTimeout
	if stall == 0 {
		stall = defaultStallTimeout
	}
	resp, err := Get(ctx, &client, q.URL, part.requestHeader(q), stall)
	if err != nil {
		return Response{}, withoutURL(err, q.URL)
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusNotModified && part.have == 0 && q.Known != Validators{}:
		return Response{Validators: q.Known, NotModified: true}, nil
	case resp.StatusCode == http.StatusOK:
		err = part.restart(q, resp)
	case resp.StatusCode == http.StatusPartialContent:
		err = part.checkRange(resp.Header.Get("Content-Range"))
	case resp.StatusCode == http.StatusRequestedRangeNotSatisfiable:
		err = errors.Join(errors.New("the server cannot resume the download"), part.discard())
	default:
		err = newStatusError(resp)
	}
	if err == nil {
		err = part.receive(q, resp.Body)
	}
	if err != nil {
		return Response{}, err
	}
	return part.response(), part.checkSum()
}

// withoutURL returns an error about a request without its method and address, which errors about a file begin with.
// The address that a redirect led to stays.
func withoutURL(err error, address string) error {
	failed, ok := errors.AsType[*url.Error](err)
	if ok && failed.URL == address {
		return failed.Err
	}
	return err
}

func newStatusError(resp *http.Response) error {
	return &StatusError{
		Code: resp.StatusCode, Status: fmt.Sprintf("%d %s", resp.StatusCode, http.StatusText(resp.StatusCode)),
		retryAfter: parseRetryAfter(resp.Header.Get("Retry-After"), time.Now()),
	}
}

// parseRetryAfter returns the delay of a Retry-After header: seconds, or a date. Zero is none.
func parseRetryAfter(s string, now time.Time) time.Duration {
	if n, err := strconv.ParseUint(s, 10, 31); err == nil {
		return time.Duration(n) * time.Second
	}
	if t, err := http.ParseTime(s); err == nil {
		return max(0, t.Sub(now))
	}
	return 0
}

// receive appends a body to the part file.
func (p *part) receive(q Request, body io.Reader) error {
	for buf := make([]byte, 256<<10); ; {
		n, err := body.Read(buf)
		if p.have+int64(n) > q.MaxBytes {
			return p.refuseSize(q)
		}
		if _, err := p.file.WriteAt(buf[:n], p.have); err != nil {
			return &permanentError{err}
		}
		p.have += int64(n)
		if q.Progress != nil {
			q.Progress(p.have, p.state.Total)
		}
		switch {
		case errors.Is(err, io.EOF) && p.state.Total >= 0 && p.have != p.state.Total:
			return fmt.Errorf("the response ended after %d of %d bytes", p.have, p.state.Total)
		case errors.Is(err, io.EOF):
			p.state.Total = p.have // where it was unknown: this one is complete
			return p.saveState()
		case err != nil:
			return err
		}
	}
}

// SizeError is returned for a file with more bytes than its limit.
type SizeError struct{ MaxBytes int64 }

func (e *SizeError) Error() string {
	return fmt.Sprintf("the file has more than %s, the limit of its source", bytesize.Format(e.MaxBytes))
}

func (p *part) refuseSize(q Request) error {
	return errors.Join(&permanentError{&SizeError{q.MaxBytes}}, p.discard())
}

// checkSum compares a complete file with the CRC-32C that servers of Google's storage send.
func (p *part) checkSum() error {
	if p.state.CRC32C == "" {
		return nil
	}
	h := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	if _, err := io.Copy(h, io.NewSectionReader(p.file, 0, p.have)); err != nil {
		return err
	}
	if got := base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, h.Sum32())); got != p.state.CRC32C {
		return errors.Join(fmt.Errorf("checksum mismatch: the file has the CRC-32C %s, its server states %s", got,
			p.state.CRC32C), p.discard())
	}
	return nil
}

// statedCRC32C returns the sum in a header such as "crc32c=n03x6A==,md5=Ojk9c3dhfxgoKVVHYwFbHQ=="; "" is none.
func statedCRC32C(values []string) string {
	for _, v := range values {
		for one := range strings.SplitSeq(v, ",") {
			if sum, ok := strings.CutPrefix(strings.TrimSpace(one), "crc32c="); ok {
				return sum
			}
		}
	}
	return ""
}

func partSize(path string) int64 {
	st, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return st.Size()
}
