package blob

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"testing"
)

// TestPartsAreVerified: of a part whose bytes do not match its digests, nothing of the damaged frame is
// returned, however it is read.
func TestPartsAreVerified(t *testing.T) {
	bodies := [][]byte{bytes.Repeat([]byte("a"), 1000), bytes.Repeat([]byte("b"), 500)}
	var frames []PartFrame
	for _, b := range bodies {
		frames = append(frames, PartFrame{StoredSize: len(b), Sum: sha256.Sum256(b)})
	}
	whole := bytes.Join(bodies, nil)
	for name, read := range map[string]func(*PartReader) ([]byte, error){
		"Read": func(p *PartReader) ([]byte, error) { return io.ReadAll(struct{ io.Reader }{p}) },
		"WriteTo": func(p *PartReader) ([]byte, error) {
			var b bytes.Buffer
			_, err := p.WriteTo(&b)
			return b.Bytes(), err
		},
	} {
		for _, c := range []struct {
			flip int // byte of the body; -1: none
			good int // returned bytes
		}{{-1, 1500}, {0, 0}, {999, 0}, {1000, 1000}, {1499, 1000}} {
			body := bytes.Clone(whole)
			if c.flip >= 0 {
				body[c.flip] ^= 1
			}
			p, err := NewPartReader(io.MultiReader(bytes.NewReader(PartHeader(frames)), bytes.NewReader(body)))
			if err != nil {
				t.Fatal(err)
			}
			got, err := read(p)
			if !bytes.Equal(got, whole[:c.good]) || errors.Is(err, ErrCorrupt) != (c.flip >= 0) {
				t.Errorf("%s, byte %d flipped: %d bytes, %v", name, c.flip, len(got), err)
			}
		}
	}
}
