package anka

import (
	"bytes"
	"strings"
	"sync"

	"github.com/buildyard/buildyard/internal/hv/cliproc"
	"github.com/buildyard/buildyard/internal/sanitize"
)

const (
	maxTranscriptBytes = 64 << 10
	maxOutputBytes     = 4 << 10 // of an output of one command
)

// transcript keeps the last commands for a VM and what they printed. A nil one keeps nothing.
type transcript struct {
	mu   sync.Mutex // guards the fields below
	text []byte
	last string // entry
}

// add adds a command, unless it is the repetition of the one before.
func (t *transcript) add(args []string, r cliproc.Result, err error) {
	if t == nil {
		return
	}
	var entry strings.Builder
	entry.WriteString("anka " + sanitize.EscapeText(strings.Join(args, " ")) + "\n")
	for _, output := range [][]byte{r.Stdout, r.Stderr} {
		output = bytes.TrimSpace(output[max(0, len(output)-maxOutputBytes):])
		for line := range strings.Lines(string(output)) {
			entry.WriteString("  " + sanitize.EscapeText(strings.TrimSuffix(line, "\n")) + "\n")
		}
	}
	if err != nil {
		entry.WriteString("  failed: " + sanitize.EscapeText(err.Error()) + "\n")
	}

	t.mu.Lock()
	defer t.mu.Unlock()
	if entry.String() == t.last {
		return
	}
	t.last = entry.String()
	t.text = append(t.text, t.last...)
	if n := len(t.text) - maxTranscriptBytes; n > 0 {
		t.text = bytes.Clone(t.text[n:])
	}
}

func (t *transcript) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}
