package buildnode

import (
	"bytes"
	"strings"
	"testing"
)

// TestStages: a step that transfers nothing shows nothing, and each other one ends once.
func TestStages(t *testing.T) {
	var out bytes.Buffer
	s := &stageBars{w: &out}
	first, _, third := s.stage("first"), s.stage("second"), s.stage("third")
	first(1, 4)
	first(4, 4)
	third(2, 2)
	s.end()
	s.end()
	lines := strings.Split(out.String(), "\n")
	if len(lines) != 3 || !strings.HasPrefix(lines[0], "first 100%  4 B of 4 B") ||
		!strings.HasPrefix(lines[1], "third 100%  2 B of 2 B") {
		t.Errorf("%q", lines)
	}
}
