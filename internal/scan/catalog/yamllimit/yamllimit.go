// Package yamllimit checks untrusted YAML documents before they are parsed.
//
// It is not a parser: it only counts the characters that every further key or value requires. The
// parser compares each key of a mapping with all others, and takes far more memory than the text.
//
// Invariant: a document that passes has no more than a bounded number of keys and values.
package yamllimit

import (
	"bytes"
	"fmt"

	"github.com/buildyard/buildyard/internal/scan/catalog"
)

// Limits of a document. Lock files of the largest projects reach a tenth of them.
const (
	MaxKeys   = 200_000
	MaxValues = 1_000_000
)

// Check checks a document.
func Check(data []byte) error {
	keys := bytes.Count(data, []byte(":")) + bytes.Count(data, []byte("?"))
	values := keys
	for _, mark := range []string{",", "[", "{", "\n", "\r", "- "} {
		values += bytes.Count(data, []byte(mark))
	}
	if keys > MaxKeys || values > MaxValues {
		return fmt.Errorf("%w: it has %d keys and %d values, which is too many", catalog.ErrTooLarge, keys,
			values)
	}
	return nil
}
