package yamllimit

import (
	"errors"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/catalog"
)

func TestCheck(t *testing.T) {
	for text, ok := range map[string]bool{
		"":                                       true,
		"a: [b, {c: d}]\n- e\n":                  true,
		strings.Repeat("a: b\n", MaxMappingKeys): true,
		strings.Repeat("a: b\n", MaxMappingKeys+1):                     false,
		strings.Repeat("- {a: b, c: d}\n", MaxMappingKeys):             true,
		"x:\n- {" + strings.Repeat("a: b, ", MaxMappingKeys+1) + "}\n": false,
		strings.Repeat("a: b\n", MaxKeys+1):                            false,
		strings.Repeat("? b\n", MaxKeys+1):                             false,
		"[" + strings.Repeat("[],", MaxValues/2+1) + "]":               false,
		strings.Repeat("- a\n", MaxValues/2+1):                         false,
	} {
		if err := Check([]byte(text)); (err == nil) != ok || err != nil && !errors.Is(err, catalog.ErrTooLarge) {
			t.Errorf("%.20q of %d bytes: %v", text, len(text), err)
		}
	}
}
