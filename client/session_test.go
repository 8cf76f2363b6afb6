package client

import (
	"context"
	"testing"
	"time"
)

// TestALateRefusal of a session that was already dropped does not affect the next one.
func TestALateRefusal(t *testing.T) {
	s := &session{bearer: hide("next"), began: time.Now(), life: sessionLife}
	s.refused("former")
	got, err := s.value(t.Context(), func(context.Context) (redacted, error) { return hide("another"), nil })
	if err != nil || got.reveal() != "next" || s.life != sessionLife {
		t.Errorf("%s, %v, for %s", got.reveal(), err, s.life)
	}
	s.refused("next")
	if got, err = s.value(t.Context(), func(context.Context) (redacted, error) {
		return hide("another"),
			nil
	}); err != nil || got.reveal() != "another" {
		t.Errorf("%s, %v", got.reveal(), err)
	}
}
