package qemu

import (
	"strings"
	"testing"
)

// The refusals of a guest's agent appear in logs and responses.
func TestRemoteErrorIsBounded(t *testing.T) {
	err := &remoteError{Desc: strings.Repeat("x", 1<<20) + "\x1b[2J\nend"}
	if got := err.Error(); len(got) > logTailBytes || !strings.HasSuffix(got, "x[2J end") {
		t.Errorf("%d bytes, ends %q", len(got), got[max(0, len(got)-20):])
	}
}
