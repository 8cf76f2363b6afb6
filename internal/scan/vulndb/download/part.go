package download

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
)

// part is a partial download. One goroutine uses it.
type part struct {
	file  *os.File
	have  int64 // bytes received
	state partState
}

// partState is the content of the file next to the part.
type partState struct {
	URL string `json:"url"`
	Validators
	Total   int64  `json:"total"` // bytes of the whole file; -1 is unknown
	Gzipped bool   `json:"gzipped,omitempty"`
	CRC32C  string `json:"crc32c,omitempty"` // as the server states it, in base64
}

const stateSuffix = ".state"

// Discard removes a partial or complete download.
func Discard(partPath string) error {
	var errs []error
	for _, name := range []string{partPath + stateSuffix, partPath} {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Detach makes a complete download independent of later ones: they do not resume there.
func Detach(partPath string) error {
	if err := os.Remove(partPath + stateSuffix); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// openPart opens what a former download of the same URL has received. Anything else there is discarded.
func openPart(q Request) (*part, error) {
	f, err := os.OpenFile(q.Part, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, &permanentError{err}
	}
	p := &part{file: f, state: partState{Total: -1}}
	b, err := os.ReadFile(q.Part + stateSuffix)
	var s partState
	if err == nil && json.Unmarshal(b, &s) == nil && s.URL == q.URL && s.resumeValidator() != "" &&
		s.Gzipped == (s.Gzipped && q.Gzip) {
		if st, err := f.Stat(); err == nil && st.Size() > 0 && st.Size() <= q.MaxBytes &&
			(s.Total < 0 || st.Size() <= s.Total) {
			p.have, p.state = st.Size(), s
			return p, nil
		}
	}
	if err := p.discard(); err != nil {
		f.Close()
		return nil, &permanentError{err}
	}
	return p, nil
}

// resumeValidator returns what If-Range may name: a strong entity tag, or a date.
func (s partState) resumeValidator() string {
	if s.ETag != "" && !strings.HasPrefix(s.ETag, "W/") {
		return s.ETag
	}
	return s.Modified
}

// requestHeader returns the headers of a request: a conditional one, or one for the rest of the file.
func (p *part) requestHeader(q Request) http.Header {
	head := q.Header.Clone()
	if head == nil {
		head = http.Header{}
	}
	head.Set("Accept-Encoding", "identity")
	if q.Gzip {
		head.Set("Accept-Encoding", "gzip")
	}
	if p.have > 0 {
		head.Set("Range", "bytes="+strconv.FormatInt(p.have, 10)+"-")
		head.Set("If-Range", p.state.resumeValidator())
		return head
	}
	if q.Known.ETag != "" {
		head.Set("If-None-Match", q.Known.ETag)
	}
	if q.Known.Modified != "" {
		head.Set("If-Modified-Since", q.Known.Modified)
	}
	return head
}

// restart begins a file that the server sends from its start.
func (p *part) restart(q Request, resp *http.Response) error {
	if resp.ContentLength > q.MaxBytes {
		return p.refuseSize(q)
	}
	encoding := resp.Header.Get("Content-Encoding")
	gzipped := q.Gzip && strings.EqualFold(encoding, "gzip")
	if encoding != "" && !strings.EqualFold(encoding, "identity") && !gzipped && !isGzipFile(q.URL) {
		return &permanentError{fmt.Errorf("the server sends the unknown content encoding %.40q", encoding)}
	}
	if err := p.discard(); err != nil {
		return &permanentError{err}
	}
	p.state = partState{
		URL: q.URL, Total: resp.ContentLength, Gzipped: gzipped,
		Validators: validators(resp.Header),
	}
	if !gzipped {
		p.state.CRC32C = statedCRC32C(resp.Header.Values("X-Goog-Hash"))
	}
	return p.saveState()
}

// maxValidatorBytes is the length of usable validators: they are stored, and sent back.
const maxValidatorBytes = 1 << 10

func validators(head http.Header) Validators {
	v := Validators{head.Get("ETag"), head.Get("Last-Modified")}
	if len(v.ETag) > maxValidatorBytes || len(v.Modified) > maxValidatorBytes {
		return Validators{}
	}
	return v
}

// isGzipFile reports whether a file is compressed itself: some servers name that as its encoding.
func isGzipFile(address string) bool {
	u, err := url.Parse(address)
	return err == nil && strings.HasSuffix(u.Path, ".gz")
}

// checkRange returns an error unless a part of the file continues the received bytes.
func (p *part) checkRange(contentRange string) error {
	rest, ok := strings.CutPrefix(contentRange, fmt.Sprintf("bytes %d-", p.have))
	_, total, sized := strings.Cut(rest, "/")
	if ok && sized && p.have > 0 && (p.state.Total < 0 || total == strconv.FormatInt(p.state.Total, 10)) {
		if n, err := strconv.ParseInt(total, 10, 64); err == nil {
			p.state.Total = n
		}
		return nil
	}
	return errors.Join(fmt.Errorf("the server sends another range than requested: %.60q", contentRange), p.discard())
}

// isComplete reports whether a former download received everything and was interrupted afterwards.
func (p *part) isComplete() bool { return p.have > 0 && p.have == p.state.Total }

func (p *part) response() Response {
	return Response{Validators: p.state.Validators, Gzipped: p.state.Gzipped}
}

func (p *part) saveState() error {
	b, err := json.Marshal(p.state)
	if err != nil {
		return err
	}
	return os.WriteFile(p.file.Name()+stateSuffix, b, 0o644)
}

// discard removes what was received.
func (p *part) discard() error {
	p.have, p.state = 0, partState{Total: -1}
	err := os.Remove(p.file.Name() + stateSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, p.file.Truncate(0))
}

func (p *part) Close() { p.file.Close() }
