package farm_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/buildyard/buildyard/internal/farm"
)

func TestCodeOf(t *testing.T) {
	cause := errors.New("disk on fire")
	inner := farm.Refused("No")
	for name, c := range map[string]struct {
		err  error
		want farm.Code
	}{
		"nil":     {nil, ""},
		"foreign": {cause, farm.CodeInternal},
		"bare":    {farm.NotFound(), farm.CodeNotFound},
		"wrapped": {fmt.Errorf("start: %w", fmt.Errorf("look up: %w", inner)), farm.CodeRefused},
		"joined":  {errors.Join(cause, farm.Invalid("count", "must be 1")), farm.CodeInvalid},
		"outermost counts": {
			&farm.Error{Code: farm.CodeUnavailable, Message: "Away", Err: inner},
			farm.CodeUnavailable,
		},
		"behind a foreign": {fmt.Errorf("x: %w", &farm.Error{Code: farm.CodeBusy, Err: cause}), farm.CodeBusy},
	} {
		if got := farm.CodeOf(c.err); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestErrorTexts(t *testing.T) {
	cause := errors.New("disk on fire")
	away := farm.Unavailable(cause, "The registry at %s is away", "r")
	for got, want := range map[string]string{
		farm.NotFound().Error():                        "Not found",
		farm.Invalid("count", "between %d", 1).Error(): "count: between 1",
		farm.Refused("No room on %q", "n").Error():     `No room on "n"`,
		away.Error(): "The registry at r is away: disk on fire",
		away.Message: "The registry at r is away",
		farm.Errorf(farm.CodeNoVersion, "Did not find any versions with tag %s",
			"a+b").Message: "Did not find any versions with tag a+b",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if !errors.Is(away, cause) {
		t.Error("the cause is lost")
	}
	if farm.Invalid("count", "x").Field != "count" {
		t.Error("the field is lost")
	}
}
