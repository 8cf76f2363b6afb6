package transfer

import (
	"errors"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
)

// TestSources: a source outside the registry that fails is avoided for a while, and its failure ends no pull.
func TestSources(t *testing.T) {
	c, err := New(Options{BaseURL: "http://registry.example:8089"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const bucket, relative, absolute = "http://bucket.example/x?sig=1", "/blob/x", "http://registry.example:8089/blob/x"
	urls := []string{bucket, relative, absolute}
	if got := c.sources.choose(c, urls, 0); got != bucket {
		t.Errorf("first %s", got)
	}
	expired := farm.Errorf(farm.CodeForbidden, "expired")
	if err := c.sources.noteFailure(c, urls[1:], relative, expired); IsTemporary(err) {
		t.Error("a refusal of the registry is temporary")
	}
	if err := c.sources.noteFailure(c, urls[:1], bucket, expired); IsTemporary(err) {
		t.Error("a refusal of the only source is temporary")
	}
	if err := c.sources.noteFailure(c, urls, bucket, expired); !IsTemporary(err) || !errors.Is(err, expired) {
		t.Errorf("a refusal of one of several sources: %v", err)
	}
	for attempt, want := range []string{relative, absolute, relative} {
		if got := c.sources.choose(c, urls, attempt); got != want {
			t.Errorf("attempt %d: %s", attempt, got)
		}
	}
	if got := c.sources.choose(c, urls[:1], 3); got != bucket {
		t.Errorf("the only source is avoided: %s", got)
	}
	c.sources.avoidedUpto = time.Now()
	if got := c.sources.choose(c, urls, 0); got != bucket {
		t.Errorf("later %s", got)
	}
}
