// Package chunked is what the readers of disk images share whose content is in chunks: reading across
// chunks, the ranges with data, a cache of decoded chunks, and the error for damaged images.
//
// It knows no format, and opens and decodes nothing: a Source does.
//
// Invariant: a chunk is decoded once for all callers that wait for it, and what is cached takes no
// more memory than the limit of the cache and one chunk.
package chunked

import (
	"errors"
	"fmt"
)

// ErrDamaged is in the chain of every error about contradictory bytes.
var ErrDamaged = errors.New("the disk is damaged")

// Damaged returns an error about contradictory bytes.
func Damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrDamaged, fmt.Sprintf(format, args...))
}
