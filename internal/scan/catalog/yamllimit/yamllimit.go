// Package yamllimit checks untrusted YAML documents before they are parsed.
//
// It decodes nothing: it counts the characters that every further key or value requires, and the keys of
// each mapping. The decoder compares each key of a mapping with all others, and takes far more memory
// than the text.
//
// Invariant: a document that passes has no more than a bounded number of keys and values, also in one
// mapping.
package yamllimit

import (
	"bytes"
	"fmt"

	"go.yaml.in/yaml/v3"

	"github.com/buildyard/buildyard/internal/scan/catalog"
)

// Limits of a document. Lock files of the largest projects reach a tenth of them.
const (
	MaxKeys   = 200_000
	MaxValues = 1_000_000
	// MaxMappingKeys are those of one mapping, whose comparison takes seconds.
	MaxMappingKeys = 20_000
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
	if keys <= MaxMappingKeys {
		return nil
	}
	var document yaml.Node
	if err := yaml.Unmarshal(data, &document); err != nil {
		return err
	}
	if n := mostKeys(&document); n > MaxMappingKeys {
		return fmt.Errorf("%w: a mapping has %d keys, which is too many", catalog.ErrTooLarge, n)
	}
	return nil
}

// mostKeys returns the number of keys of the largest mapping. Aliases lead to parts that are counted elsewhere.
func mostKeys(n *yaml.Node) int {
	most := 0
	if n.Kind == yaml.MappingNode {
		most = len(n.Content) / 2
	}
	for _, child := range n.Content {
		most = max(most, mostKeys(child))
	}
	return most
}
