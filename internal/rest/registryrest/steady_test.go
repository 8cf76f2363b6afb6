package registryrest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// deadlines is an answer that notes the deadlines that it gets.
type deadlines struct {
	*httptest.ResponseRecorder
	set []time.Time
}

func (d *deadlines) SetWriteDeadline(t time.Time) error {
	d.set = append(d.set, t)
	return nil
}

// TestAnswersMayTakeAsLongAsTheyMove: each stretch has its own deadline, and nothing is lost between two.
func TestAnswersMayTakeAsLongAsTheyMove(t *testing.T) {
	name := filepath.Join(t.TempDir(), "layer")
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	const size = 3*bytesPerDeadline + 5
	if err := os.Truncate(name, size); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		header string
		bytes  int
		sets   int // at least
	}{{"", size, 4}, {"bytes=7-", size - 7, 3}, {"bytes=0-9", 10, 1}, {"bytes=0-9,20-29", 0, 1}} {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		if c.header != "" {
			r.Header.Set("Range", c.header)
		}
		d := &deadlines{ResponseRecorder: httptest.NewRecorder()}
		http.ServeContent(newDeadlineWriter(d), r, "", time.Time{}, f)
		_ = f.Close()
		if c.bytes > 0 && d.Body.Len() != c.bytes || len(d.set) < c.sets {
			t.Errorf("%q: %d bytes, %d deadlines", c.header, d.Body.Len(), len(d.set))
		}
		for _, at := range d.set {
			if left := time.Until(at); left > idleTimeout || left < idleTimeout/2 {
				t.Errorf("%q: deadline in %s", c.header, left)
			}
		}
	}
}

// TestFilesAreStillSentByTheSystem: the underlying writer receives bounded files, which it sends without a
// copy.
func TestFilesAreStillSentByTheSystem(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if err := f.Truncate(bytesPerDeadline + 1); err != nil {
		t.Fatal(err)
	}
	var seen fileTaker
	n, err := io.CopyN(newDeadlineWriter(&seen), f, bytesPerDeadline+1)
	if err != nil || n != bytesPerDeadline+1 || seen.files != 2 {
		t.Errorf("%d bytes, %d files, %v", n, seen.files, err)
	}
}

// fileTaker counts the bounded files that it receives.
type fileTaker struct {
	files int
}

func (*fileTaker) Header() http.Header { return nil }
func (*fileTaker) WriteHeader(int)     {}

func (f *fileTaker) Write(p []byte) (int, error) { return len(p), nil }

func (f *fileTaker) ReadFrom(r io.Reader) (int64, error) {
	if l, ok := r.(*io.LimitedReader); ok {
		if _, ok := l.R.(*os.File); ok {
			f.files++
		}
	}
	return io.Copy(io.Discard, r)
}

func (*fileTaker) SetWriteDeadline(time.Time) error { return nil }
