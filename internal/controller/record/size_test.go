package record

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/buildyard/buildyard/internal/farm"
)

// TestRecordSize: the counted size of a record is never less than the stored one.
func TestRecordSize(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOf(rapid.OneOf(rapid.Rune(),
			rapid.SampledFrom([]rune("<>&\"\\\x00\x1f\n\u2028\u2029\ufffdab"))))
		inst := &farm.Instance{Name: text.Draw(t, "name"), ExternalID: text.Draw(t,
			"external id"), Metadata: map[string]any{}}
		inst.Options.NameTemplate = text.Draw(t, "name template")
		for _, name := range rapid.SliceOfN(text, 0, 20).Draw(t, "ports") {
			inst.Options.Ports = append(inst.Options.Ports,
				farm.Port{Name: name, GuestPort: 65535, HostPort: 65535, Protocol: "tcp"})
		}
		for key, value := range rapid.MapOfN(text, text, 0, 20).Draw(t, "metadata") {
			inst.Metadata[key] = value
		}
		if bound, stored := InstanceSize(inst), EncodedSize(inst); bound < stored {
			t.Fatalf("%d bytes are counted of a record of %d", bound, stored)
		}
	})
}
