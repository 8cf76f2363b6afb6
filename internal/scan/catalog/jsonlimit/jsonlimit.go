// Package jsonlimit checks untrusted JSON documents before they are decoded.
//
// It is not a decoder: it only counts the characters that begin objects and lists, and those that every further
// element requires. Decoded, an object takes up to a hundred times as much memory as the three bytes of an empty one.
//
// Invariant: a document that passes has no more than a bounded number of objects, lists and elements.
package jsonlimit

import (
	"bytes"
	"fmt"

	"github.com/buildyard/buildyard/internal/scan/catalog"
)

// Limits of a document. Lock files of the largest projects reach 20 % of them. An object takes up to about 400
// bytes of memory, and an element 100 where it is kept, so that a document takes at most about 350 MiB.
const (
	MaxObjects  = 400_000   // objects and lists
	MaxElements = 2_000_000 // of objects and lists
)

// Check checks a document.
func Check(data []byte) error { return CheckCounts(data, MaxObjects, MaxElements) }

// CheckCounts checks a document with other limits.
func CheckCounts(data []byte, maxObjects, maxElements int) error {
	objects := bytes.Count(data, []byte("{")) + bytes.Count(data, []byte("["))
	elements := objects + bytes.Count(data, []byte(","))
	if objects > maxObjects || elements > maxElements {
		return fmt.Errorf("%w: it has %d objects and lists with %d elements, which is too many", catalog.ErrTooLarge,
			objects, elements)
	}
	return nil
}
