package admission

import (
	"testing"

	"github.com/buildyard/buildyard/internal/farm"
)

// TestRequestsAtATimeAreLimited: requests that are being written count, so that concurrent requests
// cannot exceed a limit together.
func TestRequestsAtATimeAreLimited(t *testing.T) {
	one := func(string) Amounts { return Amounts{1} }
	a := newLimiter(Limits{Waiting: 8}, one)
	release, err := a.Admit("key a", Amounts{1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Admit("key a", Amounts{1}); farm.CodeOf(err) != farm.CodeBusy {
		t.Errorf("one too many: %v", err)
	}
	if _, err := a.Admit("", Amounts{7}); farm.CodeOf(err) != farm.CodeBusy {
		t.Errorf("too many of all: %v", err)
	}
	release()
	if len(a.writing) > 0 {
		t.Errorf("left: %v", a.writing)
	}
	if err := a.Check("key a", Amounts{1}); err != nil {
		t.Error(err)
	}
}
