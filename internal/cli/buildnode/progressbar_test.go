package buildnode

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func TestBar(t *testing.T) {
	var out bytes.Buffer
	now := time.Unix(1_700_000_000, 0)
	b := newProgressBar(&out, "push debian")
	b.now = func() time.Time { return now }
	b.samples, b.drawnAt = []progressSample{{at: now}}, now
	const mb = 1 << 20
	for i := range 30 {
		now = now.Add(500 * time.Millisecond)
		b.update(int64(i+1)*5*mb, 300*mb)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 3 {
		t.Errorf("%d lines in 15 s: %q", len(lines), lines)
	}
	if want := "push debian  50%  150 MiB of 300 MiB  10 MiB/s  15s left"; lines[len(lines)-1] != want {
		t.Errorf("last line %q, want %q", lines[len(lines)-1], want)
	}
	out.Reset()
	b.columns = 60
	now = now.Add(time.Second)
	b.update(300*mb, 300*mb)
	b.end()
	text := out.String()
	if !strings.HasPrefix(text, "\rpush debian [==============================] 100%") ||
		!strings.HasSuffix(text, "\n") {
		t.Errorf("on a terminal: %q", text)
	}
	for line := range strings.SplitSeq(strings.Trim(text, "\r\n"), "\r") {
		if len(line) > 59 {
			t.Errorf("line of %d columns on a terminal of 60: %q", len(line), line)
		}
	}
}

func TestNothingToShow(t *testing.T) {
	var out bytes.Buffer
	newProgressBar(&out, "pull").end()
	if out.Len() != 0 {
		t.Errorf("a transfer that never began shows %q", out.String())
	}
}
