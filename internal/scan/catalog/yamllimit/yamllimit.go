// Package yamllimit looks at YAML documents of which nothing is known, before they are read.
//
// It is not a reader of its own: it only counts the characters without which there is no
// further key and no further value. The reader compares each key of a mapping with all
// others, and takes far more memory than the text.
//
// Invariant: a document that passes has no more than a bounded number of keys and values.
package yamllimit

import (
	"bytes"
	"fmt"

	"github.com/buildyard/buildyard/internal/scan/catalog"
)

// Bounds of a document. Lock files of the largest projects have a tenth.
const (
	MaxKeys   = 200_000
	MaxValues = 1_000_000
)

// Check looks at a document.
func Check(data []byte) error {
	keys := bytes.Count(data, []byte(":")) + bytes.Count(data, []byte("?"))
	values := keys
	for _, mark := range []string{",", "[", "{", "\n", "\r", "- "} {
		values += bytes.Count(data, []byte(mark))
	}
	if keys > MaxKeys || values > MaxValues {
		return fmt.Errorf("%w: it has %d keys and %d values, or as many colons and lines", catalog.ErrTooLarge, keys, values)
	}
	return nil
}
